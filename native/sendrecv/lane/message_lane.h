// SPDX-License-Identifier: Apache-2.0
// A lane carries the messages from one rank to another. The two ranks are its sides. They share the
// lane's memory, which holds a ring of slots. A side posts a message when it writes its half of the
// message's slot. The side that posts first is the first side. The first side decides once how the
// message is carried, and the second side follows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sendrecv/cuda/driver.h"
#include "sendrecv/lane/gate.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv {

// The values are in shared memory. A change needs a new SegmentMemory::kLayout or
// RankRecord::kProtocol (segment.h).
enum class MessageDecision : uint8_t {
  kNative,    // NCCL carries the message
  kPush,      // the receiver posted first; the sender copies
  kPull,      // the sender posted first; the receiver copies
  kFetch,     // the sender posted first and must not wait; the receiver copies from staging memory
  kClosed,    // NCCL carries the message and all later ones, without slots
  kBuffered,  // the message goes through a buffer of the receiver (vccl policy)
  kCapture,   // the first side captures the message; the second has not decided yet
  kGraph,     // both sides capture the message; it is copied whenever both graphs run
};

// One side's half of a slot: its data about the message.
struct SlotHalf {
  uint64_t bytes = 0;
  uint64_t earlier_messages = 0;  // messages of any size on this lane before this one
  uint64_t allocation = 0;        // number of the exported memory that holds the message
  uint64_t offset = 0;            // offset of the message in that memory, in bytes
};

// The state of a slot: the number and the decision of its message, and whether both sides have
// posted it.
struct SlotWord {
  uint64_t number = 0;  // counts from 1; 0 if the slot is unused
  MessageDecision decision = MessageDecision::kNative;
  bool matched = false;
  // 0, or Gate::mark() if the next message found this slot in use. That message has no slot, and
  // the lane's gate (gate.h) is shut from that message on. A mark of an earlier period is ignored.
  uint64_t full = 0;

  static SlotWord Of(uint64_t packed);
  uint64_t Packed() const;
};

struct MessageSlot {
  alignas(64) std::atomic<uint64_t> word = 0;
  std::array<SlotHalf, 2> halves;  // by Role; valid once `word` has the message's number
  alignas(64) Flag ready = 0;      // the first side's stream has reached the message
  alignas(64) Flag done = 0;       // all bytes are copied
  // The flags below are used only by the rank that writes them, with Policy::kernel_waits. See
  // wait_kernels.h.
  Flag begun = 0;
  Flag copied = 0;
  Flag late = 0;
  std::array<Flag, 2> collected = {};  // by Role
};

bool IsComplete(const MessageSlot& slot);

// Describes how the two halves of a message differ. Returns an empty text if they match.
std::string DescribeMismatch(const SlotHalf& sent, const SlotHalf& received);

// A lane's shared memory. The memory is all zero at first.
struct LaneMemory {
  static constexpr uint64_t kSlots = 256;
  // The lane's state. A side breaks the lane when its rank or the peer fails (kBrokenIdle), or when
  // its application ends the communicator (kEnded). In both cases the state is kBrokenIncomplete if
  // a message was incomplete.
  enum Broken : uint32_t { kUsable, kBrokenIdle, kBrokenIncomplete, kEnded };
  alignas(64) std::atomic<uint32_t> broken = kUsable;
  std::atomic<uint64_t> mismatched_number = 0;  // number of a message whose two halves do not match
  // A pull of this lane held up a later group, so NCCL carries the next messages. See
  // wait_kernels.h, also for `expired`.
  Flag held_up = 0;
  Flag expired = 0;
  std::array<MessageSlot, kSlots> slots;

  vccl::SharedState vccl;

  // Flags of one captured message. The side that waits for a flag resets it to 0 in the graph, so
  // the graph can run any number of times.
  struct GraphFlags {
    alignas(64) Flag ready = 0;
    alignas(64) Flag done = 0;
  };
  static constexpr uint32_t kGraphMessages = 128;
  alignas(64) std::atomic<uint32_t> graph_messages = 0;  // number of `graph_flags` in use
  std::array<GraphFlags, kGraphMessages> graph_flags;
};

// Checksums of the messages from one rank to another, in shared memory.
struct Sums {
  static constexpr uint64_t kMessages = 1024;
  struct Sum {
    std::atomic<uint64_t> number = 0;  // number of the message, written last
    std::atomic<uint64_t> sum = 0;
  };
  std::array<Sum, kMessages> sums;
};

// Two processes of a communicator may run different builds. If one of these numbers changes,
// increment SegmentMemory::kLayout.
static_assert(sizeof(SlotHalf) == 32 && sizeof(MessageSlot) == 256);
static_assert(offsetof(MessageSlot, halves) == 8);
static_assert(offsetof(LaneMemory, mismatched_number) == 8 && offsetof(LaneMemory, slots) == 64);
static_assert(offsetof(LaneMemory, vccl) == 64 + LaneMemory::kSlots * sizeof(MessageSlot));
static_assert(sizeof(vccl::SharedState) == 64 + vccl::kMaxChannels * 128);
static_assert(sizeof(vccl::SharedState::Channel) == 128 && sizeof(LaneMemory::GraphFlags) == 128);
static_assert(offsetof(LaneMemory, graph_flags) == 66752 && sizeof(LaneMemory) == 83136);

// Returns whether some message was posted by at least one side and is not complete. A message in a
// CUDA graph never counts as complete.
bool HasIncomplete(const LaneMemory& lane);
// Returns whether the sender has posted a message that is pushed, pulled or fetched and is not
// complete. Returns false for a broken lane.
bool HasUnreceivedSends(const LaneMemory& lane);
// Returns a line for each incomplete message: the lane's `name`, who has posted it, and its state.
std::string DescribeIncompleteMessages(const LaneMemory& lane, std::string_view name);
// Describes the mismatch that one side has stored in `mismatched_number`. Returns an empty text if
// there is none.
std::string FindMismatch(const LaneMemory& lane);

// Stops both sides from deciding messages. Only kBrokenIncomplete replaces an earlier state. This
// function and the next two are thread-safe.
void MarkBroken(LaneMemory& lane, LaneMemory::Broken state);
// Like MarkBroken, with kBrokenIncomplete if a message is incomplete. Also ends all waits on both
// sides.
void BreakLane(LaneMemory& lane, LaneMemory::Broken state = LaneMemory::kBrokenIncomplete);
// Ends the waits for the flags of buffers and of graphs. A running peer may overwrite these flags,
// so call this repeatedly.
void EndRepeatedWaits(LaneMemory& lane);

// The result of LaneEnd::Post.
struct PostedMessage {
  uint64_t number = 0;
  bool first = false;
  bool full = false;     // the ring is full: the message has no slot and NCCL carries it
  bool invalid = false;  // the slot has a decision that the peer's role cannot make
  MessageDecision decision = MessageDecision::kNative;
  SlotHalf mine;
  SlotHalf theirs;  // valid if the peer posted first
};

// The result of LaneEnd::Capture.
struct CapturedMessage {
  enum class State : uint8_t {
    kFirst,   // the peer has not posted the message yet
    kSecond,  // the peer captures the message as well
    kDirect,  // the peer has posted the message outside of a capture
    kClosed,  // NCCL carries this and all later messages of the lane
  };
  State state = State::kClosed;
  uint64_t number = 0;
  SlotHalf mine;
  SlotHalf theirs;  // valid for kSecond
};

// One side of a lane. Not thread-safe.
class LaneEnd {
 public:
  // `ring` is the number of slots that are used. `ring` is equal on both sides.
  LaneEnd(LaneMemory& memory, GateMemory& gate, Role role, uint64_t ring = LaneMemory::kSlots)
      : memory_(memory), gate_(gate, role), role_(role), ring_(ring) {}

  Role role() const { return role_; }
  LaneMemory& memory() const { return memory_; }
  MessageSlot& SlotOf(uint64_t number) const { return memory_.slots[number % ring_]; }

  // Counts a message that has no slot.
  void CountNative() { ++messages_; }
  // Takes back the last CountNative, because NCCL refused the message.
  void UncountNative() { --messages_; }

  // Returns whether no message has had a slot yet. NCCL always carries the first message of a lane,
  // because NCCL connects the two ranks with that message. Therefore the gate opens only after both
  // sides have left a message to NCCL.
  bool IsFresh() const { return !gate_.has_opened(); }
  // Returns whether NCCL carries all messages because one side cannot use the lane's memory.
  bool is_unusable() const { return gate_.is_unusable(); }

  // Returns whether the next message has a slot. For a message with a slot, the next decision is
  // DecideFirst (route.h). A message without a slot is carried by NCCL on both sides, and
  // PassGate counts the message.
  bool PassGate();
  // Opens the gate if that is possible now. Returns whether the next message would have a slot.
  // Counts nothing.
  bool OpenGate();
  // Returns whether the gate may open once the peer reaches its next message.
  bool WaitsForPeer() const { return !closed_ && !gate_.is_open() && gate_.has_passed(); }

  // Returns the number of the next message that gets a slot.
  uint64_t next() const { return slotted_messages_ + 1; }
  // Returns whether the next message's slot is free or already has the peer's decision.
  bool HasFreeSlot() const;
  // Returns whether the peer has posted the next message first.
  bool IsDecidedByPeer() const;
  // Returns whether the receiver has posted the next message first, as a push, and the receiver's
  // stream has reached the receive.
  bool IsReceiverReady() const;
  // Returns whether at most `most` - 1 of the last messages with slots are incomplete.
  bool HasRoom(uint64_t most) const;
  // Returns whether a copy of the lane has held up others, so that the lane must be closed.
  bool gave_way() const { return memory_.held_up.load() != 0; }
  // Posts the next message. If this side is the first, `decision` becomes the decision. If no slot
  // is free, the message has none, and the gate is shut. Call PassGate first.
  PostedMessage Post(uint64_t bytes, uint64_t allocation, uint64_t offset,
                     MessageDecision decision);

  // Closes the lane: NCCL carries the next message and all later ones, on both sides. Returns false
  // if the peer has decided the next message for a copy engine. If Close returns true and the lane
  // is still not closed, call Close again: the peer had decided a message for NCCL, and the slot of
  // that message was skipped.
  bool Close();
  bool closed() const { return closed_; }

  // Posts a captured message that the peer may capture as well, instead of closing the lane.
  // Requires HasFreeSlot().
  CapturedMessage Capture(uint64_t bytes, uint64_t allocation, uint64_t offset);
  // Decides a captured message on the second side, and returns the message's flags. Returns null
  // and closes the lane if the memory is not `reachable` or no flags are left. Also returns null if
  // the first side has closed the lane.
  LaneMemory::GraphFlags* AcceptCapture(bool reachable);
  // The next two functions are for the first side of a captured message. IsDecided returns whether
  // the second side has decided. ResolveCapture returns the message's flags. It closes the lane and
  // returns null if the second side has not accepted the message.
  bool IsDecided(uint64_t number) const;
  LaneMemory::GraphFlags* ResolveCapture(uint64_t number);
  // Returns whether a graph of the peer may use this side's exported memory of that number. This
  // stays true until the lane ends, because CUDA does not report when a graph is destroyed.
  bool IsInGraph(uint64_t allocation) const;

  void Break() { sendrecv::BreakLane(memory_); }
  bool broken() const { return memory_.broken.load() != LaneMemory::kUsable; }
  // Returns whether the application of either side has ended the communicator.
  bool ended() const { return memory_.broken.load() == LaneMemory::kEnded; }

 private:
  MessageSlot& NextSlot() const { return SlotOf(next()); }
  bool IsHalfFree();
  bool MarkFull(MessageSlot& slot, uint64_t* packed) const;
  void ShutGate();
  PostedMessage GoWithoutSlot();
  bool CloseAtGate();
  LaneMemory::GraphFlags* NextGraphFlags();
  SlotWord CloseInstead(uint64_t packed) const;

  LaneMemory& memory_;
  Gate gate_;
  Role role_;
  uint64_t ring_;
  uint64_t slotted_messages_ = 0;  // messages that had a slot
  uint64_t messages_ = 0;          // messages of any size
  // While the gate is shut: how many of the next slots are known to be free.
  uint64_t free_slots_ = 0;
  bool closed_ = false;
  uint32_t graph_messages_ = 0;  // number of captured messages with flags
  // Numbers of this side's exported memory in captured messages that this side posted first. The
  // peer's graphs copy to or from that memory.
  std::vector<uint64_t> graph_allocations_;
};

// Returns the value that a slot's flag gets for the message of that number.
inline uint32_t FlagValue(uint64_t number) { return static_cast<uint32_t>(number); }

}  // namespace nccltune::sendrecv
