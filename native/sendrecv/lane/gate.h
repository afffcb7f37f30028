// SPDX-License-Identifier: Apache-2.0
// Decides which messages of a lane have slots. A lane carries the messages from one rank to
// another. A slot is a message's place in the memory that the two ranks share. A copy engine can
// carry only a message with a slot (message_lane.h).
//
// While the gate is shut, no message has a slot, and NCCL carries every message. The gate is shut
// at first, until both sides can use the lane's memory, and again whenever all slots are in use. A
// period is the time that the gate is shut once. A side passes a message at the shut gate when it
// counts the message and leaves it to NCCL. Both sides pass the messages in the same order, so
// their counts make them agree at which message the gate opens. The proof is in
// docs/design/sendrecv.md.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace nccltune::sendrecv {

enum class Role : uint8_t { kSender, kReceiver };
inline Role Other(Role role) { return role == Role::kSender ? Role::kReceiver : Role::kSender; }

// The state of a gate in shared memory, which every rank maps before it knows its peers. The state
// is all zero at first. The periods use the two words alternately. Two words are enough: a period
// ends only after both sides have been in it, so neither side still uses the period before.
struct GateMemory {
  std::array<std::atomic<uint64_t>, 2> periods = {};
};

struct GateState {
  uint32_t period = 0;
  std::array<bool, 2> entered = {};  // by Role: the side has passed a message in this period
  bool opened = false;               // the side that had passed more messages has opened the gate
  bool closed = false;               // the gate never opens again
  bool unusable = false;             // closed because one side cannot use the lane's memory
  int64_t lead = 0;  // messages passed by the sender minus messages passed by the receiver

  static GateState Of(uint64_t packed);
  uint64_t Packed() const;
};

// One side of a gate. Not thread-safe.
class Gate {
 public:
  Gate(GateMemory& memory, Role role) : memory_(memory), role_(role) {}

  // Returns whether messages have slots now.
  bool is_open() const { return open_; }
  // Returns whether the gate was open at some time.
  bool has_opened() const { return open_ || period_ > 0; }
  // Returns whether the gate is closed because one side cannot use the lane's memory.
  bool is_unusable() const { return unusable_; }
  // Returns the mark, 1 or 2, that a side writes to a slot that it has found in use. The mark
  // identifies the present period if the gate is shut, else the next period.
  uint64_t mark() const { return 1 + period_ % 2; }

  enum class Step : uint8_t {
    kNative,  // NCCL carries the message
    kOpen,    // the gate is open: the message has a slot
    kClosed,  // NCCL carries the message and all later ones
  };
  // Passes the next message at a shut gate. Opens the gate instead if three conditions hold:
  // `may_open` is set, the peer has passed a message in this period, and this side is 0 to
  // `max_lead` messages ahead.
  Step Pass(bool may_open, int64_t max_lead) { return Take(may_open, max_lead, true); }
  // Like Pass, but does not count the message if the result is kNative.
  Step TryOpen(bool may_open, int64_t max_lead) { return Take(may_open, max_lead, false); }
  bool has_passed() const { return passed_; }

  // Shuts the gate before the next message. Both sides must have agreed to shut it, by a mark in
  // the slot that the message found in use.
  void Shut() {
    open_ = false;
    passed_ = false;
  }

  // Closes the gate for ever: NCCL carries all further messages on both sides. Returns false if the
  // peer has already opened the gate at a later message. Then the gate is open on this side as
  // well.
  bool CloseForGood(bool unusable = false);

 private:
  GateState Load(uint64_t* packed) const;
  std::atomic<uint64_t>& word() const { return memory_.periods[period_ % 2]; }
  Step Take(bool may_open, int64_t max_lead, bool pass);
  void Open();

  GateMemory& memory_;
  Role role_;
  uint32_t period_ = 0;
  bool open_ = false;
  bool passed_ = false;
  bool unusable_ = false;
};

}  // namespace nccltune::sendrecv
