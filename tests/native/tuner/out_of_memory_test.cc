// SPDX-License-Identifier: Apache-2.0
// A separate program, because it replaces operator new. Init must succeed wherever memory runs out.
#include "abi/tuner.h"
#include "testing.h"
#include "tuner/plugin.h"
#include "tuner/startup.h"
#include "tuner/support.h"

namespace {
// Allocations of this thread before they fail; negative: they never fail.
thread_local long allocations_left = -1;
// Allocations of this thread that are not freed.
thread_local long allocations_live = 0;

void Free(void* memory) {
  if (memory != nullptr) --allocations_live;
  std::free(memory);
}
}  // namespace

[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory != nullptr) ++allocations_live;
  return memory;
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t /*size*/) noexcept { Free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept {
  Free(memory);
}

namespace nccltune::tuner {
namespace {

int lines_logged = 0;

void CountLine(abi::LogLevel, unsigned long, const char*, int, const char*, ...) { ++lines_logged; }

TEST(OutOfMemory, EveryInitSucceedsAndEveryCallIsSafe) {
  const ScopedFile file(
      "# nccltune: nccl=2.20.1 gpu=\"NVIDIA H200\"\nrubbish that is longer than small strings\n"
      "allreduce,0,9999,ring,ll,4,-1,-1\nallreduce,5,7,tree,ll,4,-1,-1,2\n");
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  const ScopedVariable unknown("NCCLTUNE_SOMETHING_UNKNOWN_AND_LONG", "1");
  // State of the process is allocated once.
  void* first = nullptr;
  EXPECT_EQ(Start(5, 32, 4, &CountLine, &first), abi::kSuccess);
  EXPECT_EQ(Stop(first), abi::kSuccess);
  bool reached_the_end = false;
  int neutral = 0;
  for (long budget = 0; budget < 2000 && !reached_the_end; ++budget) {
    ForgetWarnings();
    lines_logged = 0;
    void* context = &lines_logged;
    const long live_before = allocations_live;
    allocations_left = budget;
    const abi::Result result = Start(5, 32, 4, &CountLine, &context);
    reached_the_end = allocations_left > 0;
    allocations_left = 0;  // calls and finalize allocate nothing
    EXPECT_EQ(result, abi::kSuccess);
    EXPECT_GT(lines_logged, 0);
    std::array<float, 21> table{};
    table.fill(5.0F);
    int channels = 0;
    const Call call = {abi::kAllReduce, 100, 1, 0};
    const auto decided =
        DecideFromTable(context, call, reinterpret_cast<float**>(table.data()), 7, 3, &channels);
    if (context == nullptr) ++neutral;
    EXPECT_EQ(Stop(context), abi::kSuccess);
    allocations_left = -1;
    EXPECT_EQ(allocations_live, live_before);
    EXPECT_EQ(decided, abi::kSuccess);
    EXPECT_EQ(channels, context == nullptr ? 0 : 4);
  }
  EXPECT_TRUE(reached_the_end);
  EXPECT_GT(neutral, 20);
}

}  // namespace
}  // namespace nccltune::tuner
