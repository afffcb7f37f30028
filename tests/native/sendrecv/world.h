// SPDX-License-Identifier: Apache-2.0
//
// Runs programs with RunGroup on a software machine.
#ifndef NCCLTUNE_TESTS_SENDRECV_WORLD_H_
#define NCCLTUNE_TESTS_SENDRECV_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "sendrecv/group/group.h"
#include "sendrecv/lane/gate.h"
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/programs.h"
#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {

inline constexpr uint64_t kEagerLimit = 1024;
inline constexpr uint64_t kFloor = 128;
inline constexpr Kind kKind = {.floor = kFloor, .eager = kEagerLimit, .largest = 3 * kEagerLimit};

// The two policies: direct copies, and copies through buffers of the receivers.
inline constexpr Policy kCopies = {.eager_limit = kEagerLimit};
inline constexpr Policy kWithGraphs = {.eager_limit = kEagerLimit, .graphs = true};
// Streams share one connection and wait by kernels. The limits are in steps.
inline constexpr Policy kByKernels = {
    .eager_limit = kEagerLimit,
    .kernel_waits = true,
    .wait_limits = {.held_up_ns = 60, .alone_ns = 600, .longest_ns = UINT64_MAX}};
inline constexpr Policy kThroughBuffers = {.eager_limit = kEagerLimit, .vccl = true};

struct Ran {
  bool over = false;
  std::string trouble;           // empty: all bytes were right
  std::map<Path, size_t> paths;  // number of messages by path
  size_t full = 0;               // number of messages that found a full ring
};

// Settings of the lanes of a world.
struct LaneSettings {
  uint64_t ring = LaneMemory::kSlots;
  bool opened = true;           // the gates are open at first
  bool other_priority = false;  // the first stream of each rank has another priority
};

// Runs a program in a random order. `possible`: the probability that a copy engine may carry a
// message; 0: NCCL carries all.
Ran RunProgram(const Program& program, Random& random, double possible,
               const Policy& policy = kCopies, const LaneSettings& lanes = {});

// Does the same with a thread for each rank.
Ran RunProgramByThreads(const Program& program, uint64_t seed, double possible,
                        const Policy& policy = kCopies, const LaneSettings& lanes = {});

// A model of NCCL's own send and receive. The messages of a pair stay in order. A send alone
// completes when its bytes are in a buffer of limited size; a send in a group with receives
// completes when it is received. A group is one kernel, in which all messages progress at once.

class NativeLane {
 public:
  explicit NativeLane(uint64_t capacity) : capacity_(capacity) {}

  struct GroupMessage {
    uint64_t bytes = 0;
    bool send_begun = false;
    bool receive_begun = false;
    bool eager = false;
    bool buffered = false;
    bool delivered = false;
    std::vector<uint8_t> data;
  };

  // Returns the next message in this side's order.
  std::shared_ptr<GroupMessage> Next(Role role);
  // Advances all messages that can progress, and returns whether this one is complete. Thread-safe.
  bool Over(const GroupMessage& message, Role role);
  // `data` and `eager` are given by the sender.
  void Begin(GroupMessage& message, Role role, std::vector<uint8_t> data, bool eager);

 private:
  std::shared_ptr<GroupMessage> At(size_t index);
  void Advance();

  const uint64_t capacity_;
  std::mutex mutex_;
  uint64_t held_ = 0;
  size_t next_[2] = {};
  std::vector<std::shared_ptr<GroupMessage>> messages_;
  size_t first_ = 0;  // index of the first message that is not delivered
};

struct NativeCall {
  NativeLane* lane = nullptr;
  Role role = Role::kSender;
  DeviceAddress address = 0;
  uint64_t bytes = 0;
};

// Enqueues one ncclGroup in a stream. Returns false if the driver refuses.
bool NativeGroup(SoftDriver& driver, Stream stream, const std::vector<NativeCall>& calls);

// A gate that is open for both sides before their first message.
struct OpenedGate {
  GateMemory memory;
  OpenedGate() {
    GateState state;
    state.entered = {true, true};
    state.opened = true;
    memory.periods[0].store(state.Packed());
  }
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WORLD_H_
