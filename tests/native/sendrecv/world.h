// SPDX-License-Identifier: Apache-2.0
// Runs programs with RunGroup on a software machine.
#ifndef NCCLTUNE_TESTS_SENDRECV_WORLD_H_
#define NCCLTUNE_TESTS_SENDRECV_WORLD_H_

#include "sendrecv/group/group.h"
#include "sendrecv/lane/gate.h"
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/programs.h"
#include "sendrecv/soft_engine.h"
#include "standard.h"

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

// Checks that a program has ended well. Adds its paths to `paths`.
void ExpectWell(const Ran& ran, const Program& program, uint64_t seed,
                std::map<Path, size_t>* paths = nullptr);

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
