// SPDX-License-Identifier: Apache-2.0
//
// From the decided messages of a group to operations in streams. Pure; why in this order is in
// docs/design/sendrecv.md.
#ifndef NCCLTUNE_SENDRECV_PLAN_H_
#define NCCLTUNE_SENDRECV_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sendrecv/driver.h"
#include "sendrecv/fifo.h"
#include "sendrecv/lane.h"
#include "sendrecv/staging.h"

namespace nccltune::sendrecv {

// A message as this side has to carry it out.
struct Part {
  enum class Kind : uint8_t {
    kAwait,   // [ready] and wait for `done`: the other copies
    kCopy,    // wait for `ready`, copy, `done`
    kStaged,  // copy to `staging` and go on; what kCopy does, from there, beside
    kLeft,    // copy to `staging`, `ready`, and go on: the other copies from there
    kFill,    // copy `from` to the slots of `chunks`
    kEmpty,   // and out of them `to` the memory of the message
  };
  Kind kind = Kind::kAwait;
  size_t lane = 0;  // parts of a lane stay in order; those of two do not wait for each other
  Flag* ready = nullptr;
  Flag* done = nullptr;
  uint32_t value = 0;
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  DeviceAddress staging = 0;
  std::vector<Staging::Before> before;  // until `staging` is free
  uint64_t bytes = 0;
  uint64_t piece = 0;  // bytes of a copy at most, but not of a graph's; 0: all of them
  bool there = false;  // `ready` was seen already
  bool again = false;  // whoever waits for a flag resets it, for the next run of the graph
  std::vector<Fifo::Chunk> chunks;
  LaneMemory::Channel* channels = nullptr;
  uint64_t steps = 0;
};

struct Operation {
  enum class Kind : uint8_t {
    kWrite,
    kWait,
    kCopy,
    kFork,  // `stream` goes on when `other` is here
    kMark,  // the application's will wait until `stream` is here
    kJoin,  // and does
  };
  Kind kind = Kind::kWrite;
  size_t stream = 0;  // of the plan's
  size_t other = 0;
  Flag* flag = nullptr;
  uint32_t value = 0;
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  uint64_t bytes = 0;
};

// A lane has streams beside the application's: to its peer, where copies may wait long, to its
// staging memory, where they wait for room only, one under capture, for every second piece of what
// is copied in the application's and in the one to its peer, and one for each channel of its
// buffer.
struct PlanStream {
  enum Kind : size_t { kToPeer, kToStaging, kOfGraph, kBeside, kBesideToPeer, kToChannel };
  static constexpr size_t kKinds = kToChannel + kMostChannels;
  size_t lane = 0;
  size_t kind = kToPeer;  // kToChannel: and on
  bool operator==(const PlanStream&) const = default;
};

struct Plan {
  // NCCL's part of the group is started between the two.
  std::vector<Operation> before;
  std::vector<Operation> after;
  // The first is the application's, whatever it says.
  std::vector<PlanStream> streams;
};

// `native`: NCCL carries some messages of the group.
Plan MakePlan(std::span<const Part> parts, bool native);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_PLAN_H_
