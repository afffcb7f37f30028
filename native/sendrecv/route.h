// SPDX-License-Identifier: Apache-2.0
// Every decision about who carries a message, and how. The functions call neither CUDA nor NCCL:
// message_call.cc, group.cc and message_lane.h collect what they depend on. The table of decisions
// is in docs/design/sendrecv.md ("Push, pull, native, staged"). In the order of a message:
//
//   EligibilityOf      at the call: may a copy engine carry it at all?
//   LocalRoute         at the end of the group: does this rank allow a copy engine?
//   DecideFirst        push, pull, fetch, buffer or NCCL; on the side that posts the message first
//                      (LaneEnd::Post), if the lane's gate gives it a slot (LaneEnd::PassGate). The
//                      other side follows
//   ChooseSendMethod   is a push direct or from staging memory?
//   RouteTaken         what is counted
//
// If a copy engine may carry a captured message, LaneEnd::Capture and AcceptCapture replace the
// gate and DecideFirst.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "sendrecv/cuda/wait_kernels.h"
#include "sendrecv/lane/message_lane.h"

namespace nccltune::sendrecv {

// Counts messages by route: how a copy engine carried them, or why NCCL carried them. Thread-safe.

enum class Route : uint8_t {
  // Carried by a copy engine.
  kPushed,
  kPulled,
  kStaged,
  kBuffered,  // through a buffer of the receiver
  // Carried by NCCL.
  kSmall,      // below the size from which copy engines are used
  kElsewhere,  // the peer is on another host, or one of the two ranks cannot use copy engines
  kFirst,      // the first message from one rank to another: with it NCCL connects the two
  kFull,       // no free slot for it in the memory that the two ranks share
  kEager,      // a send that must not wait for its receive, and no staging memory was usable
  kEarly,      // received before it was sent, and only receivers copy
  kGaveWay,    // an earlier message held up others, and streams wait by kernels
  kPeer,       // the peer decided that NCCL carries it
  kCaptured,   // captured in a CUDA graph, or after a captured message
  kEnded,      // the peer's application has ended the communicator
  kUnshared,   // the memory cannot be shared with other processes
  kNoMemory,   // not GPU memory of this process, or in several allocations
  kNotYet,     // the peer has not mapped the memory yet
  kRefused,    // the peer could not map the memory
  kNoRoom,     // the table of exported memory is full
  kForeign,    // the stream belongs to another context than the communicator
  kOff,        // the operator has switched the library off
  kDry,        // dry run: a copy engine would have carried it
  // Counted in addition to one of the routes above.
  kChecked,  // the contents were compared
  kCount,
};

// Returns a text such as "copy engine, pushed".
std::string_view DescribeRoute(Route route);

class Counts {
 public:
  struct Total {
    uint64_t messages = 0;
    uint64_t bytes = 0;
  };

  void Add(Route route, uint64_t bytes, uint64_t messages = 1) {
    Counter& counter = counters_[static_cast<size_t>(route)];
    counter.messages.fetch_add(messages, std::memory_order_relaxed);
    counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  Total Get(Route route) const;

  // Returns one line for each route that was used, or an empty text if none was. `separator` ends
  // each line.
  std::string Report(std::string_view separator = "\n") const;

 private:
  struct Counter {
    std::atomic<uint64_t> messages = 0;
    std::atomic<uint64_t> bytes = 0;
  };
  std::array<Counter, static_cast<size_t>(Route::kCount)> counters_;
};

// The counters of the process. They are never destroyed.
inline Counts& ProcessCounts() {
  constinit static Counts counts;
  return counts;
}

enum class Eligibility : uint8_t {
  kUntracked,  // NCCL carries the message, and neither rank counts it
  kNative,     // NCCL carries the message, and both ranks count it
  // A copy engine may carry the message. The two ranks decide at the end of their groups. They may
  // still leave the message to NCCL.
  kEligible,
};

struct CallFacts {
  // The library handles the communicator. False for empty messages, for messages of a rank to
  // itself, and for calls that NCCL refuses.
  bool tracked = false;
  uint64_t bytes = 0;
  uint64_t floor = 0;  // Communicator::FloorOf
  bool dry_run = false;
  bool lane_closed = false;
};

// Sender and receiver get the same result, except after a capture or an error on one rank. In that
// case the memory that they share (message_lane.h) makes them agree.
Eligibility EligibilityOf(const CallFacts& facts);

struct LocalFacts {
  uint64_t bytes = 0;
  uint64_t from = 0;  // this rank's own threshold; EligibilityOf has used the lower one of both
  bool captured = false;
  bool graphs = false;        // Policy::graphs
  bool switched_off = false;  // live_control.h
  bool first = false;         // NCCL connects the two ranks with this message
};

// Returns Route::kPushed if this rank allows a copy engine, or the reason why NCCL must carry the
// message. `of_memory` does the same for the stream and the memory of the message; it is called
// only if nothing else stands against a copy engine.
Route LocalRoute(const LocalFacts& facts, const std::function<Route()>& of_memory);

// What the first side's decision about a message depends on.
struct MessageConditions {
  uint64_t bytes = 0;
  // The first side allows a copy engine: the size, captures and memory permit it. It is set
  // from the result of LocalRoute. The second side's value matters only for captured
  // messages.
  bool can_copy = false;
  // Copies into the peer's memory are allowed (direct_access.h).
  bool may_push = true;
  // The group also has receives. Under NCCL, too, such a group may wait for its peers.
  bool group_receives = false;
  // On the sender's side: the receiver has mapped this rank's staging memory (plan.h). Only
  // looked up if a copy engine may carry the message, but NCCL would carry it otherwise.
  bool staging = false;
};

struct Policy {
  // Sends of up to this many bytes complete before their receives are posted. NCCL's buffers have
  // the same effect for small sends.
  uint64_t eager_limit = uint64_t{64} << 20;
  // Sends of any size may wait for their receives.
  bool sends_may_wait = false;
  // Every message goes through a buffer of its receiver. See vccl/vccl.h.
  bool vccl = false;
  // A copy engine carries messages that both sides capture in CUDA graphs, whenever the graphs run.
  bool graphs = false;
  // Most bytes of one copy, or 0 for no limit. The pieces of a message alternate between two
  // streams, so that other copies can run between them.
  uint64_t piece = 0;
  // Streams wait by kernels, and the receiver copies each message that its sender has posted first.
  // NCCL carries all others. For streams that share one connection to the GPU.
  bool kernel_waits = false;
  WaitLimits wait_limits = {};
};

// Returns whether a send may wait for its receive: the policy allows every send to wait, the group
// also receives, or the message is larger than `eager_limit`. In the last two cases the send may
// wait under NCCL as well.
bool MayWait(const MessageConditions& conditions, const Policy& policy);

// Returns how the message is carried. `role` is that of the first side. For a push, the next
// decision is ChooseSendMethod on the sender, and then MakePlan (plan.h).
MessageDecision DecideFirst(Role role, const MessageConditions& conditions, const Policy& policy);

// Returns how the sender copies a message that the receiver has posted first. `ready` is true if
// the receiver's stream has reached the receive, so that a direct copy does not wait.
enum class SendMethod : uint8_t { kDirect, kStaged };
SendMethod ChooseSendMethod(bool ready, const MessageConditions& conditions, const Policy& policy);

enum class Path : uint8_t { kNative, kPushed, kStaged, kPulled, kBuffered };

// Why NCCL carries a message.
enum class NativeReason : uint8_t {
  kDecided,   // the first side decided for NCCL
  kFresh,     // no message of the lane has had a slot yet
  kRingFull,  // all slots are in use, or were and less than half of them is free again
  kClosed,    // NCCL carries all messages of the lane from now on
  kEnded,     // the peer's application has ended the communicator
  kEarly,     // the receiver came first, and only receivers copy
};

// How a message is carried.
struct MessageOutcome {
  Path path = Path::kNative;
  bool first = false;  // this side posted first and decided
  NativeReason reason = NativeReason::kDecided;
};

// The lane of a message that has been carried, and the message itself.
struct LaneFacts {
  bool small = false;     // smaller than the `from` of both ranks
  bool unusable = false;  // one side cannot use the lane's memory
  bool gave_way = false;  // LaneEnd::gave_way
};

// Returns the route of a message that has been carried. `local` is the result of LocalRoute.
Route RouteTaken(const MessageOutcome& taken, Route local, const LaneFacts& lane);
inline Route RouteOfClosed(bool gave_way) { return gave_way ? Route::kGaveWay : Route::kCaptured; }
inline Route RouteWithoutLane(uint64_t bytes, uint64_t from) {
  return bytes < from ? Route::kSmall : Route::kElsewhere;
}

}  // namespace nccltune::sendrecv
