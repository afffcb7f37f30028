// SPDX-License-Identifier: Apache-2.0
// Plans in which order and in which streams the operations of a group are enqueued. Calls neither
// CUDA nor NCCL. The reasons for the order are in docs/design/sendrecv.md ("The order in a
// stream").
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "sendrecv/cuda/driver.h"
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv {

// Staging memory on the sender's GPU, for sends that complete before they are received. The memory
// is a ring of regions, one for each staged message. A region is free again when the `done` flag of
// its message is written. The next user of the region waits for that flag in its stream, like a
// send of NCCL that waits for space in NCCL's buffers. So the host never waits for a free region.
class Staging {
 public:
  Staging(DeviceAddress base, uint64_t capacity) : base_(base), capacity_(capacity) {}

  struct Completion {
    Flag* done = nullptr;
    uint32_t value = 0;
  };
  struct Region {
    DeviceAddress at = 0;
    std::vector<Completion> wait_for;  // messages that must leave the region first
    uint64_t begin = 0;                // position in the ring, in bytes since the first message
    uint64_t end = 0;
  };

  DeviceAddress base() const { return base_; }

  // Returns the region for the next message, or nothing if the message is larger than the ring.
  // Does not reserve the region.
  std::optional<Region> Find(uint64_t bytes) const;
  // Reserves the region that Find returned last, until `done` reaches `value`.
  void Take(const Region& region, Flag& done, uint32_t value);

 private:
  struct HeldRegion {
    uint64_t begin = 0;
    Completion message;
  };
  bool Overlaps(const HeldRegion& held, uint64_t end) const { return end > held.begin + capacity_; }

  DeviceAddress base_;
  uint64_t capacity_;
  uint64_t head_ = 0;  // where the next region begins
  std::deque<HeldRegion> held_;
};

// This side's operations for a message that a copy engine carries.
struct MessageTransfer {
  enum class Kind : uint8_t {
    kPeerCopies,     // write `ready`, wait for `done`
    kCopy,           // wait for `ready`, copy, write `done`
    kStagedCopy,     // copy to `staging`; a second stream then does kCopy from there
    kStagedForPeer,  // copy to `staging`, write `ready`; the peer copies from there
    // The next two are used by the vccl policy only.
    kBufferedSend,     // run the operations of `channels`
    kBufferedReceive,  // run the operations of `channels`, then write `done`
  };
  Kind kind = Kind::kPeerCopies;
  // Index of the message's lane. A lane carries the messages from one rank to another. Messages of
  // one lane keep their order. Lanes do not wait for each other.
  size_t lane = 0;
  Flag* ready = nullptr;
  Flag* done = nullptr;
  uint32_t value = 0;
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  DeviceAddress staging = 0;
  // Earlier messages whose bytes must leave `staging` first.
  std::vector<Staging::Completion> wait_for;
  uint64_t bytes = 0;
  // Most bytes of one copy, or 0 for no limit. A message in a graph is always one copy.
  uint64_t piece = 0;
  // `ready` was already set when the message was posted, so do not wait for it.
  bool peer_is_ready = false;
  // The message is captured; the side that waits for a flag resets it for the next run.
  bool in_graph = false;
  // With Policy::kernel_waits (kernel_plan.h): the message's slot and lane. `by_kernel`: the
  // exchange kernel copies the bytes, because no copy engine can be used.
  MessageSlot* slot = nullptr;
  LaneMemory* lane_memory = nullptr;
  Role role = Role::kSender;
  bool by_kernel = false;
  bool same_gpu = false;  // the peer's memory is on this GPU
  // The operations of each channel, each in a stream of its own. See vccl/vccl.h.
  std::vector<std::vector<Operation>> channels;
};

// A stream that the library creates for a lane.
struct PlanStream {
  enum Kind : size_t {
    kToPeer,        // copies that may wait long for the peer
    kToStaging,     // copies that wait only for free staging memory
    kOfGraph,       // copies of captured messages
    kBeside,        // every second piece of a message that is copied in the application's stream
    kBesideToPeer,  // every second piece of a message that is copied in the stream kToPeer
    kToChannel,     // the first channel of the vccl policy; the other channels follow
  };
  static constexpr size_t kKinds = kToChannel + vccl::kMaxChannels;
  size_t lane = 0;
  size_t kind = kToPeer;
  bool operator==(const PlanStream&) const = default;
};

struct Plan {
  // NCCL's calls of the group are made between these two lists.
  std::vector<Operation> before_native;
  std::vector<Operation> after_native;
  // Index 0 stands for the application's stream. Its entry has default values.
  std::vector<PlanStream> streams;
};

// Returns the plan of a group. `native` is true if NCCL carries some calls of the group.
Plan MakePlan(std::span<const MessageTransfer> transfers, bool native);

}  // namespace nccltune::sendrecv
