// SPDX-License-Identifier: Apache-2.0
//
// The messages from one rank to another, as both see them: a ring of slots in memory that they
// share. A message is decided once, by whoever comes first.
#ifndef NCCLTUNE_SENDRECV_LANE_H_
#define NCCLTUNE_SENDRECV_LANE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sendrecv/driver.h"
#include "sendrecv/fifo.h"

namespace nccltune::sendrecv {

enum class Role : uint8_t { kSender, kReceiver };
inline Role Other(Role role) { return role == Role::kSender ? Role::kReceiver : Role::kSender; }

enum class Verdict : uint8_t {
  kNative,   // NCCL carries it
  kPush,     // the receiver was first: the sender copies
  kPull,     // the sender was first: the receiver copies
  kFetch,    // so it was, and must not wait: the receiver copies what it has left
  kClosed,   // NCCL carries it and all behind it, without slots
  kFifo,     // through a buffer of the receiver
  kCapture,  // under capture where it was told of first; not decided yet
  kGraph,    // under capture on both sides: copied whenever both graphs run
};

// What one side tells of a message.
struct Half {
  uint64_t bytes = 0;
  uint64_t before = 0;      // messages of any size on this lane before it
  uint64_t allocation = 0;  // known to both by this number
  uint64_t offset = 0;      // of the first byte in it
};

// The state of a message: its number, what was decided, and whether the other came, too.
struct Word {
  uint64_t number = 0;  // from 1; 0: nothing was here
  Verdict verdict = Verdict::kNative;
  bool met = false;

  static Word Of(uint64_t packed);
  uint64_t Packed() const;
};

struct Slot {
  alignas(64) std::atomic<uint64_t> word = 0;
  std::array<Half, 2> halves;  // by Role; each is its side's until the word tells of it
  alignas(64) Flag ready = 0;  // the first's stream is there
  alignas(64) Flag done = 0;   // the bytes are
};

// Nothing of the message that had it last is still to come.
bool IsOver(const Slot& slot);

// Where the two halves of a message do not agree, what differs; empty: nothing.
std::string Disagreement(uint64_t number, const Half& sent, const Half& received);

// In shared memory, all zero at first.
struct LaneMemory {
  static constexpr uint64_t kSlots = 512;
  // By whoever broke it first: whether messages were open then.
  enum Broken : uint32_t { kWhole, kIdle, kOpen };
  alignas(64) std::atomic<uint32_t> broken = kWhole;
  std::atomic<uint64_t> differs = 0;  // the number of a message that the two sides see otherwise
  std::array<Slot, kSlots> slots;

  // The receiver's buffer that messages may go through: its allocation; 0: there is none yet. Flags
  // count its chunks.
  alignas(64) std::atomic<uint64_t> fifo = 0;
  struct Channel {
    alignas(64) Flag filled = 0;
    alignas(64) Flag emptied = 0;
    std::atomic<uint32_t> told = 0;  // the last chunk that somebody has enqueued
  };
  std::array<Channel, kMostChannels> channels;

  // Flags of messages of graphs, which run as often as they like: 1 until whoever waits for one has
  // seen it.
  struct Replayed {
    alignas(64) Flag ready = 0;
    alignas(64) Flag done = 0;
  };
  static constexpr uint32_t kReplayed = 128;
  alignas(64) std::atomic<uint32_t> graphs = 0;  // of them in use
  std::array<Replayed, kReplayed> replayed;

  Slot& Of(uint64_t number) { return slots[number % kSlots]; }
};

// Some message has been told of by one side at least, and is not over.
bool HasOpen(const LaneMemory& lane);
// The sender has told of some message for a copy engine that is not over.
bool HasSent(const LaneMemory& lane);
// Each message that is told of and not over, a line of its own behind `name`: who has told of it,
// and how far it is.
std::string OpenWords(const LaneMemory& lane, std::string_view name);
// What was found that both do not agree in; empty: nothing.
std::string FindDisagreement(const LaneMemory& lane);

// What was found out by arriving.
struct Arrived {
  uint64_t number = 0;
  bool first = false;
  Verdict verdict = Verdict::kNative;
  Half mine;
  Half theirs;  // where the other was first
};

// What was found out of a message under capture.
struct Captured {
  enum class How : uint8_t {
    kFirst,   // whether it is so there, too, is not known yet
    kSecond,  // it is
    kDirect,  // there it was called directly
    kClosed,  // the lane is closed
  };
  How how = How::kClosed;
  uint64_t number = 0;
  Half mine;
  Half theirs;  // kSecond
};

// One side's end. Not for several threads at once.
class LaneEnd {
 public:
  LaneEnd(LaneMemory& memory, Role role) : memory_(memory), role_(role) {}

  Role role() const { return role_; }
  LaneMemory& memory() const { return memory_; }

  // A message that is too small for a slot goes by.
  void Pass() { ++messages_; }

  // No message had a slot yet. The first one is NCCL's, which connects two ranks with the first of
  // its own: in groups that are alike on both sides, or never.
  bool IsFresh() const { return numbers_ == 0; }

  // Of the next message.
  uint64_t next() const { return numbers_ + 1; }
  // It is about to be told of: its slot is free. False: the peer is a whole ring of
  // messages behind, or its GPU is.
  bool HasRoom() const;
  // Whether the other has told of it already.
  bool Told() const;
  // And, in a push, the receiver's stream is there.
  bool Ready() const;
  // Tells of the next message, and decides it with `verdict` where the other did not.
  Arrived Arrive(uint64_t bytes, uint64_t allocation, uint64_t offset, Verdict verdict);

  // From the next message on NCCL carries all, for both sides; again where it returns true and the
  // lane is not closed (the peer was ahead with NCCL's). As Arrive, where there is room. False: the
  // peer has told of a message for a copy engine.
  bool Close();
  bool closed() const { return closed_; }

  // A message under capture, that may be one under capture there, too: instead of Close.
  Captured Capture(uint64_t bytes, uint64_t allocation, uint64_t offset);
  // Of the second: it is decided. Its flags; null: the lane is closed, as is wanted by !possible.
  LaneMemory::Replayed* Accept(bool possible);
  // Of the first: the second has decided. Then its answer; where there is none, it is closed.
  bool IsDecided(uint64_t number) const;
  LaneMemory::Replayed* Answer(uint64_t number);

  // No message is told of any more. From any thread, as what follows. `open`: although messages are
  // not over, or are not known to be.
  void GiveUp(bool open);
  // And all waits end, of both sides.
  void Break(bool open = true);
  // The same once more for the receiver's buffer, whose flags are written by whoever still runs.
  void Release();
  bool broken() const { return memory_.broken.load() != 0; }

 private:
  Slot& NextSlot() const { return memory_.Of(next()); }

  LaneMemory& memory_;
  Role role_;
  uint64_t numbers_ = 0;   // messages that had a slot
  uint64_t messages_ = 0;  // of any size
  LaneMemory::Replayed* NextReplayed();
  Word CloseInstead(uint64_t packed) const;

  bool closed_ = false;
  uint32_t graphs_ = 0;  // messages of them
};

// Flags count in the numbers of messages.
inline uint32_t FlagValue(uint64_t number) { return static_cast<uint32_t>(number); }

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LANE_H_
