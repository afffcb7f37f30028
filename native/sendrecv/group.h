// SPDX-License-Identifier: Apache-2.0
//
// The sends and receives of one group on one stream: told of, decided, and enqueued.
#ifndef NCCLTUNE_SENDRECV_GROUP_H_
#define NCCLTUNE_SENDRECV_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sendrecv/decision.h"
#include "sendrecv/driver.h"
#include "sendrecv/lane.h"
#include "sendrecv/plan.h"
#include "sendrecv/staging.h"

namespace nccltune::sendrecv {

// Where this process finds an allocation of its peer; 0: it cannot reach it.
using Resolve = std::function<DeviceAddress(uint64_t allocation, uint64_t offset)>;

// One end of a lane with what belongs to it on this side.
struct Port {
  LaneEnd* end = nullptr;
  Staging* staging = nullptr;  // of a sender; null: none
  // Of our own, for copies beside the application's: to the peer, and to the staging memory.
  Stream stream = nullptr;
  Stream staging_stream = nullptr;
  Event forked = nullptr;
  Event joined = nullptr;
  Event staging_joined = nullptr;
  Resolve resolve;
  std::string name;  // "rank 3 to rank 5"
};

struct Message {
  Port* port = nullptr;
  DeviceAddress address = 0;
  uint64_t bytes = 0;
  uint64_t allocation = 0;  // as the peer knows it
  uint64_t offset = 0;
  bool possible = false;  // see Circumstances
  bool small = false;     // below the floor, on both sides: NCCL's without a word
};

enum class Path : uint8_t { kNative, kPushed, kStaged, kPulled };

struct Outcome {
  // By message, in the order given: how it goes. NCCL is to be called for the native ones.
  std::vector<Path> paths;
  // Empty: well. Nothing was enqueued otherwise, and the communicator is of no use any more.
  std::string error;
};

struct Surroundings {
  Driver* driver = nullptr;
  Policy policy;
  // Waits a moment for peers, and is asked whether there is still time for it. Never for long.
  std::function<bool()> moment;
  // Waits until somebody else has done something, as long as it takes: a ring of messages is full.
  std::function<void()> pause;
  // NCCL's part of the group, enqueued beside ours; null where it has none of them.
  std::function<bool(const std::vector<size_t>& messages)> native;
};

Outcome RunGroup(const std::vector<Message>& messages, Stream stream,
                 const Surroundings& surroundings);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_GROUP_H_
