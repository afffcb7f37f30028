// SPDX-License-Identifier: Apache-2.0
//
// Posts, decides and enqueues the sends and receives of one group. decision.h lists what is decided
// about a message. eligibility.h decides which messages come here at all.
#ifndef NCCLTUNE_SENDRECV_GROUP_H_
#define NCCLTUNE_SENDRECV_GROUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sendrecv/decision.h"
#include "sendrecv/driver.h"
#include "sendrecv/message_lane.h"
#include "sendrecv/plan.h"
#include "sendrecv/staging.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv {

// Returns the address in this process of bytes that the peer exports; 0: they are not all mapped.
using Resolve = std::function<DeviceAddress(uint64_t allocation, uint64_t offset, uint64_t bytes)>;

// An address as the peer knows it: the number of exported memory, and an offset.
struct ExportedAddress {
  uint64_t allocation = 0;
  uint64_t offset = 0;
};

// One end of a lane, with the resources that this side has for it.
struct Port {
  LaneEnd* end = nullptr;
  // Returns the sender's staging memory, and allocates it at the first call; null: there is none.
  std::function<Staging*()> staging;
  // The last message that was pushed from staging memory. Later copies in the stream to the peer
  // wait for it.
  std::optional<Staging::Completion> staged;
  // Returns the address of the staging memory, if the peer has mapped it.
  std::function<std::optional<ExportedAddress>()> staging_address;
  // For the vccl policy; returns null if the receiver's buffer cannot be reached.
  std::function<vccl::Channels*()> channels;
  // The library's streams, by PlanStream::Kind, created when first needed.
  std::array<Stream, PlanStream::kKinds> streams = {};
  std::array<Event, PlanStream::kKinds> joined = {};
  Event forked = nullptr;
  // Streams of captured messages. A graph may use them as long as it exists.
  std::vector<Stream> captured;
  Resolve resolve;
  // Maps the memory that the peer has exported since the last call.
  std::function<void()> map_new;
  bool connected = false;  // dry run: NCCL has already carried a large message of this lane
  // both ends may belong to one thread, so this side never waits for the peer
  bool same_process = false;
  std::string name;  // "rank 3 to rank 5"
};

struct GroupMessage {
  Port* port = nullptr;
  size_t call_index = 0;  // index of the application's call in the group
  DeviceAddress address = 0;
  uint64_t bytes = 0;
  uint64_t allocation = 0;  // number of the exported memory
  uint64_t offset = 0;
  bool can_copy = false;  // see MessageConditions
  bool small = false;     // below the floor on both sides: NCCL carries it, without a slot
  // The message is part of a graph. The graph may run any number of times, so its runs cannot be
  // counted.
  bool captured = false;
};

// The messages of one communicator in one stream.
struct Batch {
  std::vector<GroupMessage> messages;
  Stream stream = nullptr;
  Driver* driver = nullptr;
};

enum class Path : uint8_t { kNative, kPushed, kStaged, kPulled, kBuffered };

// Why NCCL carries a message.
enum class NativeReason : uint8_t {
  kDecided,   // the first side decided for NCCL
  kFresh,     // the lane has not been used yet
  kRingFull,  // the ring of slots is full, or was full and is not half empty yet
  kClosed,    // the lane is closed
  kEnded,     // the peer's application has ended the communicator
};

// How a message is carried.
struct MessageOutcome {
  Path path = Path::kNative;
  bool first = false;  // this side has decided
  NativeReason reason = NativeReason::kDecided;
};

struct GroupOutcome {
  // By batch and message, in the given order. NCCL has already been called for its messages.
  std::vector<std::vector<MessageOutcome>> messages;
  // Empty: success. Otherwise the communicators cannot be used any more.
  std::string error;
  // Not null: NCCL's part is in progress. Call it when that is complete, with the batches
  // unchanged. It enqueues the rest and returns false if CUDA refuses.
  std::function<bool()> enqueue_rest;
  enum class Cause : uint8_t {
    kRefused,  // CUDA or NCCL refused an operation
    kPeer,     // the peer has abandoned the communicator
    kUsage,    // the calls of the two ranks do not match
  };
  Cause cause = Cause::kRefused;
};

// Result of NCCL's part of a group.
enum class NativeStart : uint8_t { kComplete, kInProgress, kRefused };

// What RunGroup needs from its caller.
struct GroupContext {
  Policy policy;
  // Waits a moment for the receiver. Returns whether to call it again. `bytes`: how much copying by
  // the receiver's engine a longer wait may save; 0: none.
  std::function<bool(uint64_t bytes)> wait_for_receiver;
  // Does the same for a peer that may capture the same message.
  std::function<bool()> wait_for_capture;
  // NCCL has more work in the group than the messages passed to `start_native`.
  bool has_other_native_work = false;
  // Makes NCCL's calls and ends NCCL's group. `messages`: by batch, the messages that NCCL carries.
  // Called once, unless there was an error before.
  std::function<NativeStart(const std::vector<std::vector<size_t>>& messages)> start_native;
};

// Posts, decides and enqueues the messages of a group. To NCCL a group is one operation. So all
// batches are enqueued before any of them is waited for.
GroupOutcome RunGroup(const std::vector<Batch>& batches, const GroupContext& context);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_GROUP_H_
