// SPDX-License-Identifier: Apache-2.0
// Small transfers. In each of them another memory allocation or epoll_ctl fails. Either all data
// arrives, or a call fails and logs a line. Nothing may crash, hang or leak.
#include "net/link.h"

#include <sys/epoll.h>

#include "testing.h"

namespace nccltune::net {
namespace {

// Injects failures of allocations and of epoll_ctl at a chosen call. It replaces operator new, and
// epoll_ctl through the linker's --wrap, so it needs a program of its own.
enum class Fault { kMemory, kEpoll };

struct Countdown {
  std::atomic<int64_t> left = 0;  // calls left before the first failure; negative after it
  std::atomic<int64_t> count = 0;
  std::atomic<bool> failed = false;

  bool Fails() {
    if (count == 0) return false;
    const int64_t before = --left;
    if (before >= 0 || before < -count) return false;
    failed = true;
    return true;
  }
};

constinit Countdown memory;
constinit Countdown epoll;
constinit thread_local bool exempt = false;
constinit std::atomic<int64_t> live = 0;

// A prefix of each block stores whether it is counted.
constexpr size_t kPrefix = 64;

void* Allocate(size_t bytes, size_t alignment) {
  if (!exempt && memory.Fails()) throw std::bad_alloc();
  const size_t wanted = (bytes + kPrefix + alignment - 1) / alignment * alignment;
  auto* const block = static_cast<std::byte*>(std::aligned_alloc(alignment, wanted));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<bool*>(block) = !exempt;
  if (!exempt) ++live;
  return block + kPrefix;
}

void Free(void* memory_of_new) noexcept {
  if (memory_of_new == nullptr) return;
  std::byte* const block = static_cast<std::byte*>(memory_of_new) - kPrefix;
  if (*reinterpret_cast<bool*>(block)) --live;
  std::free(block);
}

// Makes `count` calls fail, starting with call number `first`, counted from 1 over all threads.
void Arm(Fault fault, int64_t first, int64_t count) {
  Countdown& countdown = fault == Fault::kMemory ? memory : epoll;
  countdown.failed = false;
  countdown.left = first - 1;
  countdown.count = count;
}

// Stops injecting. Returns whether a call failed since Arm.
bool Disarm() {
  memory.count = 0;
  epoll.count = 0;
  return memory.failed.exchange(false) | epoll.failed.exchange(false);
}

// While an object exists, calls of this thread are neither counted nor failed, or (kExempt: false)
// are counted again.
template <bool kExempt>
class Exemption {
 public:
  Exemption() : before_(std::exchange(exempt, kExempt)) {}
  ~Exemption() { exempt = before_; }
  Exemption(const Exemption&) = delete;
  Exemption& operator=(const Exemption&) = delete;

 private:
  bool before_;
};
using Exempt = Exemption<true>;
using NotExempt = Exemption<false>;

// Number of unfreed blocks that were allocated by threads without an exemption.
int64_t LiveBlocks() { return live; }

constinit std::atomic<int> warnings = 0;

void CountWarnings(abi::LogLevel level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
                   const char* /*format*/, ...) {
  if (level == abi::kLogWarn) ++warnings;
}

// A connection from listen to close. Any allocation of the plugin may fail, but none of the test's
// own.
class Transfer {
 public:
  Transfer() : device_(Loopback()) {
    context_.settings.flows = 2;
    context_.settings.threads = 2;
    // Over loopback the kernel accepts zero-copy sends, copies and reports them.
    context_.settings.zero_copy = ZeroCopyMode::kAlways;
    context_.log = Log(CountWarnings, abi::kSubsysNet, "net: ");
    context_.owner = NewOwner();
  }

  // Returns whether all data arrived; if not, a call has failed.
  bool Run() {
    const bool all = Join() && Move();
    const NotExempt counted;
    Close(sender_);
    Close(receiver_);
    Close(listener_);
    Release(context_.owner);
    return all;
  }

 private:
  bool Well(abi::Result result) {
    failed_ |= result != abi::kSuccess;
    return !failed_;
  }

  bool Join() {
    if (!Well(Call([&] { return Listen(context_, device_, handle_, &listener_); }))) return false;
    EXPECT_TRUE(Until([&] {
      if (sender_ == nullptr) {
        Well(Call([&] { return Connect(context_, device_, handle_, &sender_); }));
      }
      if (receiver_ == nullptr && !failed_) {
        Well(Call([&] { return Accept(listener_, &receiver_); }));
      }
      return failed_ || (sender_ != nullptr && receiver_ != nullptr);
    })) << "neither connected nor failed";
    return !failed_;
  }

  // Small and large messages, some sent before their receive is posted, while a flow dies.
  bool Move() {
    const std::vector<size_t> sizes = {100, 40'000, 0, 1 << 20, 9'000, 300'000, 2 << 20, 1};
    for (const size_t bytes : sizes) {
      contents_.push_back(Content(bytes, bytes));
      buffers_.emplace_back(bytes);
    }
    std::vector<TransferRequest*> sends(sizes.size());
    std::vector<TransferRequest*> receives(sizes.size());
    size_t sent = 0;
    size_t posted = 0;
    size_t done = 0;
    bool killed = false;
    const auto test = [&](TransferRequest** request) {
      if (*request == nullptr || failed_) return;
      bool over = false;
      size_t bytes = 0;
      Well(Call([&] { return net::Test(*request, &over, &bytes); }));
      if (!over) return;
      *request = nullptr;
      ++done;
    };
    EXPECT_TRUE(Until([&] {
      if (sent < sizes.size()) {
        const std::vector<std::byte>& content = contents_[sent];
        TransferRequest*& request = sends[sent];
        Well(Call([&] { return Send(sender_, content.data(), content.size(), &request); }));
        if (request != nullptr) ++sent;
      }
      if (posted < sent / 2 || (sent == sizes.size() && posted < sizes.size())) {
        std::vector<std::byte>& buffer = buffers_[posted];
        TransferRequest*& request = receives[posted];
        if (!failed_) {
          Well(Call([&] { return Receive(receiver_, buffer.data(), buffer.size(), &request); }));
        }
        if (request != nullptr) ++posted;
      }
      for (TransferRequest*& request : sends) test(&request);
      for (TransferRequest*& request : receives) test(&request);
      if (done >= 4 && !killed) {
        killed = true;
        const std::vector<int> flows = SocketsTo(ReadHandle(handle_)->ends.front());
        if (!flows.empty()) shutdown(flows.back(), SHUT_RDWR);
      }
      return failed_ || done == 2 * sizes.size();
    })) << "neither done nor failed";
    if (failed_) return false;
    // Comparing vectors of std::byte is a loop, which takes most of the time under sanitizers.
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(sizes[i] == 0 ||
                  std::memcmp(buffers_[i].data(), contents_[i].data(), sizes[i]) == 0);
    }
    return true;
  }

  template <typename Do>
  static abi::Result Call(const Do& call) {
    const NotExempt counted;
    return call();
  }

  Device device_;
  ConnectionContext context_ = ContextWith({});
  HandleArray handle_ = {};
  Listener* listener_ = nullptr;
  Sender* sender_ = nullptr;
  Receiver* receiver_ = nullptr;
  bool failed_ = false;
  // Kept until the connection is closed.
  std::vector<std::vector<std::byte>> contents_;
  std::vector<std::vector<std::byte>> buffers_;
};

struct Case {
  const char* name;
  Fault fault;
  int64_t count;  // number of consecutive calls that fail
  int least_errors;
};

// The epoll_ctl calls without which the flow or thread cannot work: one for the first thread, and
// one for each of the three flows at both ends.
constexpr int kNeededEpollCalls = 7;

class FaultTest : public testing::TestWithParam<Case> {
 protected:
  const Exempt exempt_;
};

INSTANTIATE_TEST_SUITE_P(Faults, FaultTest,
                         testing::Values(Case{"OneAllocation", Fault::kMemory, 1, 50},
                                         Case{"AllAllocationsForAWhile", Fault::kMemory, 40, 50},
                                         Case{"OneEpollCall", Fault::kEpoll, 1, kNeededEpollCalls},
                                         Case{"AllEpollCallsForAWhile", Fault::kEpoll, 10,
                                              kNeededEpollCalls}),
                         [](const testing::TestParamInfo<Case>& each) { return each.param.name; });

TEST_P(FaultTest, AnyFailureIsAnErrorAndLeavesNothing) {
  // Allocate everything that stays for the life of the process.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Transfer().Run());
  const int64_t blocks = LiveBlocks();
  const int open = CountOpen();
  int errors = 0;
  int unharmed = 0;
  for (int64_t n = 1; unharmed < 3 && !HasFailure(); ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    warnings = 0;
    Transfer transfer;
    Arm(GetParam().fault, n, GetParam().count);
    const bool all = transfer.Run();
    // The number of calls varies from run to run.
    if (!Disarm()) ++unharmed;
    if (!all) {
      ++errors;
      EXPECT_GT(warnings, 0) << "an error without a line in the log";
    }
    EXPECT_TRUE(Until([&] { return LiveBlocks() == blocks; }))
        << LiveBlocks() << ", not " << blocks;
    EXPECT_TRUE(Until([&] { return CountOpen() == open; })) << CountOpen() << ", not " << open;
  }
  RecordProperty("errors", errors);
  EXPECT_GE(errors, GetParam().least_errors);
}

}  // namespace
}  // namespace nccltune::net

namespace fault = nccltune::net;

void* operator new(size_t bytes) { return fault::Allocate(bytes, fault::kPrefix); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return fault::Allocate(bytes, std::max(static_cast<size_t>(alignment), fault::kPrefix));
}
void operator delete(void* block) noexcept { fault::Free(block); }
void operator delete(void* block, size_t /*bytes*/) noexcept { fault::Free(block); }
void operator delete(void* block, std::align_val_t /*alignment*/) noexcept { fault::Free(block); }
void operator delete(void* block, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  fault::Free(block);
}

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names.
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (!fault::exempt && fault::epoll.Fails()) {
    errno = ENOSPC;
    return -1;
  }
  return __real_epoll_ctl(epoll, operation, fd, event);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

}  // extern "C"
