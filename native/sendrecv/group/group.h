// SPDX-License-Identifier: Apache-2.0
// Carries out the sends and receives of one group. For each message: posts it in its lane
// (message_lane.h), decides how it is carried (route.h), and enqueues the operations (plan.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sendrecv/cuda/driver.h"
#include "sendrecv/lane/kernel_plan.h"
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/lane/plan.h"
#include "sendrecv/route.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv {

// Returns the address in this process of memory that the peer exports, or 0 if not all of its bytes
// are mapped.
using Resolve = std::function<DeviceAddress(uint64_t allocation, uint64_t offset, uint64_t bytes)>;

// An address as the peer knows it: the number of an exported entry (segment.h), and an offset in
// the entry's memory.
struct ExportedAddress {
  uint64_t allocation = 0;
  uint64_t offset = 0;
};

// One end of a lane, with this side's resources for it. A lane carries the messages from one rank
// to another.
struct Port {
  LaneEnd* end = nullptr;
  // Returns the sender's staging memory (plan.h), or null if there is none. The first call
  // allocates the memory.
  std::function<Staging*()> staging;
  // The completion of the last message that was pushed from staging memory. Later copies to the
  // peer wait for that message, because they are in the same stream.
  std::optional<Staging::Completion> staged;
  // Returns the address of the staging memory, if the peer has mapped it.
  std::function<std::optional<ExportedAddress>()> staging_address;
  // Returns the channels of the vccl policy, or null if the receiver's buffer cannot be reached.
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
  // The peer is in this process. One thread may own both ends, so this side never waits for the
  // peer.
  bool same_process = false;
  bool same_gpu = false;
  bool may_push = true;  // see DirectAccess::may_push
  std::string name;      // "rank 3 to rank 5"
};

struct GroupMessage {
  Port* port = nullptr;
  size_t call_index = 0;  // index of the application's call in the group
  DeviceAddress address = 0;
  uint64_t bytes = 0;
  uint64_t allocation = 0;  // number of the exported memory that holds the message
  uint64_t offset = 0;
  bool can_copy = false;  // see MessageConditions::can_copy
  bool small = false;     // smaller than the `from` of both ranks: NCCL carries it, without a slot
  // The call is captured in a CUDA graph. The graph may run any number of times, so its runs cannot
  // be counted.
  bool captured = false;
};

struct Batch {
  std::vector<GroupMessage> messages;
  Stream stream = nullptr;
  Driver* driver = nullptr;
  HelperStreams* helpers = nullptr;  // used with Policy::kernel_waits
};

struct GroupOutcome {
  // By batch and message, in the given order. NCCL has already been called for the messages that it
  // carries.
  std::vector<std::vector<MessageOutcome>> messages;
  // Empty after success. Otherwise the communicators cannot be used any more.
  std::string error;
  // Set if NCCL's calls are still in progress. When they are complete, call this function. It
  // enqueues the remaining operations and returns false if CUDA refuses. The batches must not
  // change until then.
  std::function<bool()> enqueue_rest;
  enum class Cause : uint8_t {
    kRefused,  // CUDA or NCCL refused an operation
    kPeer,     // the peer has abandoned the communicator
    kUsage,    // the calls of the two ranks do not match
  };
  Cause cause = Cause::kRefused;
};

// The state of NCCL's calls of a group when they have returned.
enum class NativeStart : uint8_t { kComplete, kInProgress, kRefused };

// What RunGroup needs from its caller: the policy, callbacks, and whether NCCL has other work in
// the group.
struct GroupContext {
  Policy policy;
  // Waits a moment for the receiver to post the message. Returns whether the caller may wait again.
  // The wait may save the receiver's copy engine a copy of `bytes` bytes, so it may take longer for
  // more bytes.
  std::function<bool(uint64_t bytes)> wait_for_receiver;
  // Waits a moment for a peer that may capture the same message. Returns whether the caller may
  // wait again.
  std::function<bool()> wait_for_capture;
  // NCCL has more work in the group than the messages passed to `start_native`.
  bool has_other_native_work = false;
  // Makes NCCL's calls and ends NCCL's group. `messages` has, for each batch, the indices of the
  // messages that NCCL carries. Called once, unless there was an error before.
  std::function<NativeStart(const std::vector<std::vector<size_t>>& messages)> start_native;
};

// Posts, decides and enqueues the messages of a group. To NCCL a group is one operation. So the
// copies of all batches are enqueued before the application's streams wait for any of them.
GroupOutcome RunGroup(const std::vector<Batch>& batches, const GroupContext& context);

}  // namespace nccltune::sendrecv
