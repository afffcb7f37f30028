// SPDX-License-Identifier: Apache-2.0
// Programs whose streams share one connection and wait by kernels.
#include "sendrecv/lane/kernel_plan.h"
#include "sendrecv/world.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSlower = 10;
#else
constexpr uint64_t kSlower = 1;
#endif

MessageTransfer Transfer(MessageTransfer::Kind kind, std::vector<MessageSlot>* slots, size_t index,
                         LaneMemory* lane) {
  MessageSlot& slot = (*slots)[index];
  MessageTransfer transfer;
  transfer.kind = kind;
  transfer.ready = &slot.ready;
  transfer.done = &slot.done;
  transfer.value = static_cast<uint32_t>(index + 1);
  transfer.bytes = 100;
  transfer.slot = &slot;
  transfer.lane_memory = lane;
  transfer.role = kind == MessageTransfer::Kind::kCopy ? Role::kReceiver : Role::kSender;
  return transfer;
}

// In a plan of any size each message is raised or pulled once and waited for once, and at most one
// kernel of the application's stream waits.
TEST(KernelPlan, HasEachMessageOnce) {
  for (const size_t sends : {0U, 1U, 32U, 33U, 64U, 70U, 200U}) {
    for (const size_t receives : {0U, 1U, 32U, 33U, 64U, 70U, 200U}) {
      for (const bool split : {false, true}) {
        LaneMemory lane;
        std::vector<MessageSlot> slots(sends + receives);
        std::vector<MessageTransfer> transfers;
        for (size_t i = 0; i < sends + receives; ++i) {
          transfers.push_back(Transfer(
              i < sends ? MessageTransfer::Kind::kPeerCopies : MessageTransfer::Kind::kCopy, &slots,
              i, &lane));
        }
        const KernelPlan plan = MakeKernelPlan(transfers, split, {});
        std::map<const Flag*, int> raised;
        std::map<const Flag*, int> pulled;
        std::map<const Flag*, int> awaited;
        std::map<const Flag*, int> collected;
        size_t waiting = 0;
        const auto add = [&](const ExchangeKernel& kernel, bool application) {
          for (uint32_t i = 0; i < kernel.raise_count; ++i) ++raised[kernel.raises[i].flag];
          for (uint32_t i = 0; i < kernel.pull_count; ++i) ++pulled[kernel.pulls[i].done];
          for (uint32_t i = 0; i < kernel.wait_count; ++i) ++awaited[kernel.waits[i].flag];
          if (kernel.collected_count != 0) ++collected[kernel.collected.flag];
          if (application && kernel.wait_count + kernel.pull_count > 0) ++waiting;
          EXPECT_EQ(kernel.expired, &lane.expired);
        };
        for (const ExchangeKernel& each : plan.starts) add(each, true);
        for (const ExchangeKernel& each : plan.collectors) add(each, false);
        for (const ExchangeKernel& each : plan.waits) add(each, true);
        EXPECT_EQ(waiting, sends + receives > 0 ? 1U : 0U);
        EXPECT_EQ(raised.size(), sends + (receives > 0 ? 1 : 0));
        EXPECT_EQ(pulled.size(), receives);
        EXPECT_EQ(plan.pulls.size(), receives);
        for (const auto& [flag, count] : collected) EXPECT_EQ(awaited[flag], count);
        const bool direct = sends + receives <= ExchangeKernel::kMostWaits;
        EXPECT_EQ(collected.empty(), direct || plan.waits.empty());
        for (size_t i = 0; i < sends; ++i) EXPECT_EQ(awaited[&slots[i].done], 1);
        if (!plan.starts.empty()) {
          EXPECT_NE(plan.starts.front().start, 0U);
        }
        // NCCL's part must not wait for a kernel of the library.
        for (const ExchangeKernel& each : plan.starts) {
          EXPECT_TRUE(!split || each.wait_count + each.pull_count == 0);
        }
      }
    }
  }
}

size_t Count(const char* variable, size_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<size_t>(std::atoll(text));
}

// Programs that end under NCCL with one connection must end with the library. A program whose
// kernels NCCL launches in an order that may hang is left out. KERNEL_WAITS_OPERATIONS: the number
// of sends and receives.
TEST(KernelWaits, WhatEndsWithNcclEndsWithUs) {
  const size_t wanted = Count("KERNEL_WAITS_OPERATIONS", 25'000 / kSlower);
  const uint64_t begin = Count("KERNEL_WAITS_SEED", 0);
  std::map<Path, size_t> paths;
  size_t operations = 0;
  size_t left_out = 0;
  for (uint64_t seed = begin; operations < wanted; ++seed) {
    Random random(seed);
    Kind kind = kKind;
    kind.crowded = random() % 8 == 0;
    const bool eager = random() % 2 == 0;
    const Program program = RandomProgram(random, 4 + random() % 30, eager, kind);
    bool well = true;
    for (int i = 0; well && i < 3; ++i) well = RunProgram(program, random, 0, kByKernels).over;
    if (!well) {
      ++left_out;
      continue;
    }
    operations += 2 * program.messages.size();
    const LaneSettings lanes = {
        .ring = random() % 4 == 0 ? uint64_t{2} << random() % 3 : LaneMemory::kSlots,
        .opened = random() % 2 == 0,
        .other_priority = random() % 8 == 0};
    const Ran ran = RunProgram(program, random, 0.9, kByKernels, lanes);
    ASSERT_NO_FATAL_FAILURE(ExpectWell(ran, program, seed, &paths));
  }
  EXPECT_GT(paths[Path::kPulled], wanted / 40);
  EXPECT_EQ(paths[Path::kPushed] + paths[Path::kStaged] + paths[Path::kBuffered], 0U);
  RecordProperty("pulled", static_cast<int>(paths[Path::kPulled]));
  RecordProperty("native", static_cast<int>(paths[Path::kNative]));
  RecordProperty("left_out", static_cast<int>(left_out));
  std::printf("%zu operations, %zu pulled, %zu by NCCL, %zu programs left out\n", operations,
              paths[Path::kPulled], paths[Path::kNative], left_out);
}

TEST(KernelWaits, ByThreads) {
  size_t ended = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const Program program = RandomProgram(random, 30, false, kKind);
    bool well = true;
    for (int i = 0; well && i < 5; ++i) well = RunProgram(program, random, 0, kByKernels).over;
    well = well && RunProgramByThreads(program, seed, 0, kByKernels).over;
    if (!well) continue;
    ++ended;
    const Ran ran = RunProgramByThreads(program, seed, 0.8, kByKernels);
    ASSERT_NO_FATAL_FAILURE(ExpectWell(ran, program, seed));
  }
  EXPECT_GT(ended, 5U);
}

}  // namespace
}  // namespace nccltune::sendrecv
