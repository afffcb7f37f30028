// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/message_lane.h"

#include <algorithm>
#include <optional>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kDecisionBits = 7;
constexpr uint64_t kMatched = 8;
constexpr int kFullShift = 4;
constexpr uint64_t kFullBits = 3;
constexpr int kNumberShift = 6;

}  // namespace

SlotWord SlotWord::Of(uint64_t packed) {
  return {.number = packed >> kNumberShift,
          .decision = static_cast<MessageDecision>(packed & kDecisionBits),
          .matched = (packed & kMatched) != 0,
          .full = packed >> kFullShift & kFullBits};
}

uint64_t SlotWord::Packed() const {
  return number << kNumberShift | full << kFullShift | (matched ? kMatched : 0) |
         static_cast<uint64_t>(decision);
}

namespace {

bool IsComplete(const MessageSlot& slot, const SlotWord& word) {
  if (word.number == 0 || word.decision == MessageDecision::kClosed) return true;
  if (!word.matched) return false;
  return word.decision == MessageDecision::kNative || word.decision == MessageDecision::kGraph ||
         Reached(slot.done.load(), FlagValue(word.number));
}

// Returns whether a first side with the role `first` can make this decision.
bool IsOneOf(Role first, MessageDecision decision) {
  switch (decision) {
    case MessageDecision::kPush:
      return first == Role::kReceiver;
    case MessageDecision::kPull:
    case MessageDecision::kFetch:
      return first == Role::kSender;
    case MessageDecision::kGraph:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool IsComplete(const MessageSlot& slot) {
  return IsComplete(slot, SlotWord::Of(slot.word.load()));
}

// A graph may run at any time, so its messages never count as complete.
bool HasIncomplete(const LaneMemory& lane) {
  return lane.graph_messages.load() != 0 ||
         std::ranges::any_of(lane.slots, [](const MessageSlot& slot) { return !IsComplete(slot); });
}

std::string DescribeIncompleteMessages(const LaneMemory& lane, std::string_view name) {
  struct Known {
    std::string_view what;
    std::optional<Role> first;  // the first side, if the decision determines it
  };
  constexpr std::array<Known, 7> kKnown = {{{"by NCCL", {}},
                                            {"pushed", Role::kReceiver},
                                            {"pulled", Role::kSender},
                                            {"fetched", Role::kSender},
                                            {"by NCCL from here on", {}},
                                            {"through the buffer", {}},
                                            {"captured", {}}}};
  std::string words;
  for (const MessageSlot& slot : lane.slots) {
    const SlotWord word = SlotWord::Of(slot.word.load());
    const auto decision = static_cast<size_t>(word.decision);
    if (IsComplete(slot) || decision >= kKnown.size()) continue;
    const auto& [what, first] = kKnown[decision];
    const SlotHalf& half = slot.halves[static_cast<size_t>(first.value_or(Role::kSender))];
    // The half with the smaller count may still belong to an earlier message. So use the larger
    // count.
    const uint64_t earlier =
        std::max(slot.halves[0].earlier_messages, slot.halves[1].earlier_messages);
    words += std::string(name) + ": message " + std::to_string(earlier + 1) + ", ";
    if (first) words += std::to_string(half.bytes) + " bytes, ";
    words += what;
    if (word.matched) {
      words += ": sent and received";
    } else if (first) {
      words += *first == Role::kSender ? ": sent, not yet received" : ": received, not yet sent";
    } else {
      words += ": posted by one side";
    }
    const uint32_t value = FlagValue(word.number);
    if (Reached(slot.ready.load(), value)) words += ", the first stream has reached it";
    words += '\n';
  }
  return words;
}

bool HasUnreceivedSends(const LaneMemory& lane) {
  if (lane.broken.load() != LaneMemory::kUsable) return false;
  return std::ranges::any_of(lane.slots, [](const MessageSlot& slot) {
    const SlotWord word = SlotWord::Of(slot.word.load());
    const bool first =
        word.decision == MessageDecision::kPull || word.decision == MessageDecision::kFetch;
    const bool second = word.decision == MessageDecision::kPush && word.matched;
    return (first || second) && !IsComplete(slot);
  });
}

std::string DescribeMismatch(const SlotHalf& sent, const SlotHalf& received) {
  const std::string which = "message " + std::to_string(sent.earlier_messages + 1) + " ";
  if (sent.bytes != received.bytes) {
    return which + "has " + std::to_string(sent.bytes) + " bytes at the sender and " +
           std::to_string(received.bytes) + " at the receiver";
  }
  if (sent.earlier_messages != received.earlier_messages) {
    return which + "follows " + std::to_string(sent.earlier_messages) +
           " messages at the sender and " + std::to_string(received.earlier_messages) +
           " at the receiver: the sizes of an earlier send and receive differ";
  }
  return "";
}

std::string FindMismatch(const LaneMemory& lane) {
  const uint64_t number = lane.mismatched_number.load();
  if (number == 0) return "";
  const auto found = std::ranges::find_if(lane.slots, [&](const MessageSlot& slot) {
    return SlotWord::Of(slot.word.load()).number == number;
  });
  if (found == lane.slots.end()) return "";
  return DescribeMismatch(found->halves[static_cast<size_t>(Role::kSender)],
                          found->halves[static_cast<size_t>(Role::kReceiver)]);
}

// Returns whether the next half of the slots is free. A program that always has messages in
// progress never has all slots free. With less than half of the slots free, the gate would soon
// shut again.
bool LaneEnd::IsHalfFree() {
  while (free_slots_ < ring_ / 2 && IsComplete(SlotOf(next() + free_slots_))) ++free_slots_;
  return free_slots_ == ring_ / 2;
}

bool LaneEnd::PassGate() {
  if (closed_) return false;
  if (gate_.is_open()) return true;
  const Gate::Step step = gate_.Pass(IsHalfFree(), static_cast<int64_t>(ring_ / 4));
  if (step == Gate::Step::kOpen) return true;
  closed_ = step == Gate::Step::kClosed;
  ++messages_;
  return false;
}

bool LaneEnd::OpenGate() {
  if (closed_) return false;
  if (gate_.is_open()) return true;
  return gate_.TryOpen(IsHalfFree(), static_cast<int64_t>(ring_ / 4)) == Gate::Step::kOpen;
}

// Marks a slot that the next message has found in use. Returns false if the slot's word has changed
// meanwhile. Both sides change the same word, to this mark or to the next message. So they agree
// whether that message has a slot.
bool LaneEnd::MarkFull(MessageSlot& slot, uint64_t* packed) const {
  SlotWord word = SlotWord::Of(*packed);
  word.full = gate_.mark();
  return slot.word.compare_exchange_strong(*packed, word.Packed());
}

void LaneEnd::ShutGate() {
  gate_.Shut();
  free_slots_ = 0;
}

PostedMessage LaneEnd::GoWithoutSlot() {
  ShutGate();
  PassGate();
  PostedMessage posted;
  posted.full = true;
  posted.decision = closed_ ? MessageDecision::kClosed : MessageDecision::kNative;
  return posted;
}

bool LaneEnd::HasFreeSlot() const {
  const MessageSlot& slot = NextSlot();
  const SlotWord word = SlotWord::Of(slot.word.load());
  return word.number == next() || (word.full != gate_.mark() && IsComplete(slot, word));
}

bool LaneEnd::HasRoom(uint64_t most) const {
  if (next() <= most) return true;
  const MessageSlot& slot = SlotOf(next() - most);
  const SlotWord word = SlotWord::Of(slot.word.load());
  return word.number != next() - most || IsComplete(slot, word);
}

bool LaneEnd::IsDecidedByPeer() const {
  return SlotWord::Of(NextSlot().word.load()).number == next();
}

bool LaneEnd::IsReceiverReady() const {
  const MessageSlot& slot = NextSlot();
  const SlotWord word = SlotWord::Of(slot.word.load());
  return word.number == next() && word.decision == MessageDecision::kPush &&
         Reached(slot.ready.load(), FlagValue(next()));
}

PostedMessage LaneEnd::Post(uint64_t bytes, uint64_t allocation, uint64_t offset,
                            MessageDecision decision) {
  MessageSlot& slot = NextSlot();
  PostedMessage posted;
  posted.number = next();
  posted.mine = {
      .bytes = bytes, .earlier_messages = messages_, .allocation = allocation, .offset = offset};
  SlotHalf& half = slot.halves[static_cast<size_t>(role_)];
  uint64_t packed = slot.word.load();
  while (SlotWord::Of(packed).number != next()) {
    const SlotWord previous = SlotWord::Of(packed);
    if (previous.full == gate_.mark()) return GoWithoutSlot();
    if (!IsComplete(slot, previous)) {
      if (MarkFull(slot, &packed)) return GoWithoutSlot();
      continue;
    }
    half = posted.mine;
    const SlotWord mine = {.number = next(), .decision = decision};
    if (!slot.word.compare_exchange_strong(packed, mine.Packed())) continue;
    posted.first = true;
    posted.decision = decision;
    ++slotted_messages_;
    ++messages_;
    return posted;
  }
  // The peer has decided. It has written its half of the slot before the word, so its half can be
  // read now.
  half = posted.mine;
  ++slotted_messages_;
  ++messages_;
  SlotWord word = SlotWord::Of(packed);
  if (word.decision == MessageDecision::kCapture) word = CloseInstead(packed);
  posted.decision = word.decision;
  posted.invalid = !IsOneOf(Other(role_), word.decision);
  closed_ = word.decision == MessageDecision::kClosed;
  if (closed_ || posted.invalid) return posted;
  posted.theirs = slot.halves[static_cast<size_t>(Other(role_))];
  // A plain store could overwrite a mark that the peer sets at the same time.
  slot.word.fetch_or(kMatched);
  return posted;
}

// Closes the lane while the gate is shut. Returns false if the peer has already opened the gate.
bool LaneEnd::CloseAtGate() {
  closed_ = gate_.CloseForGood();
  return closed_;
}

bool LaneEnd::Close() {
  if (!gate_.is_open() && CloseAtGate()) return true;
  MessageSlot& slot = NextSlot();
  uint64_t packed = slot.word.load();
  while (SlotWord::Of(packed).number != next()) {
    const SlotWord previous = SlotWord::Of(packed);
    if (previous.full == gate_.mark() || (!IsComplete(slot, previous) && MarkFull(slot, &packed))) {
      ShutGate();
      // The gate cannot have opened again: that requires this side to pass a message first.
      return CloseAtGate();
    }
    if (!IsComplete(slot, previous)) continue;
    const SlotWord mine = {.number = next(), .decision = MessageDecision::kClosed};
    closed_ = slot.word.compare_exchange_strong(packed, mine.Packed());
    if (closed_) return true;
  }
  SlotWord word = SlotWord::Of(packed);
  if (word.decision == MessageDecision::kCapture) word = CloseInstead(packed);
  closed_ = word.decision == MessageDecision::kClosed;
  if (closed_) return true;
  if (word.decision != MessageDecision::kNative) return false;
  ++slotted_messages_;
  slot.word.fetch_or(kMatched);
  return true;
}

// Closes the lane at a message that only the peer captures.
SlotWord LaneEnd::CloseInstead(uint64_t packed) const {
  SlotWord word = SlotWord::Of(packed);
  word.decision = MessageDecision::kClosed;
  // If the exchange fails, the peer has closed the lane itself.
  SlotOf(word.number).word.compare_exchange_strong(packed, word.Packed());
  return word;
}

CapturedMessage LaneEnd::Capture(uint64_t bytes, uint64_t allocation, uint64_t offset) {
  CapturedMessage captured;
  captured.number = next();
  captured.mine = {
      .bytes = bytes, .earlier_messages = messages_, .allocation = allocation, .offset = offset};
  MessageSlot& slot = NextSlot();
  uint64_t packed = slot.word.load();
  if (SlotWord::Of(packed).number != next()) {
    slot.halves[static_cast<size_t>(role_)] = captured.mine;
    const SlotWord mine = {.number = next(), .decision = MessageDecision::kCapture};
    if (slot.word.compare_exchange_strong(packed, mine.Packed())) {
      ++slotted_messages_;
      ++messages_;
      // The peer may accept the message from now on, and its graph may then use this memory.
      graph_allocations_.push_back(allocation);
      captured.state = CapturedMessage::State::kFirst;
      return captured;
    }
  }
  const SlotWord word = SlotWord::Of(packed);
  captured.theirs = slot.halves[static_cast<size_t>(Other(role_))];
  closed_ = word.decision == MessageDecision::kClosed;
  if (word.decision == MessageDecision::kCapture) captured.state = CapturedMessage::State::kSecond;
  if (!closed_ && word.decision != MessageDecision::kCapture) {
    captured.state = CapturedMessage::State::kDirect;
  }
  return captured;
}

LaneMemory::GraphFlags* LaneEnd::AcceptCapture(bool reachable) {
  const bool accepts = reachable && graph_messages_ < LaneMemory::kGraphMessages;
  uint64_t packed =
      SlotWord{.number = next(), .decision = MessageDecision::kCapture, .matched = false}.Packed();
  const SlotWord mine = {.number = next(),
                         .decision = accepts ? MessageDecision::kGraph : MessageDecision::kClosed};
  // The exchange fails if the first side has stopped waiting and closed the lane.
  closed_ = !NextSlot().word.compare_exchange_strong(packed, mine.Packed()) || !accepts;
  if (closed_) return nullptr;
  ++slotted_messages_;
  ++messages_;
  return NextGraphFlags();
}

bool LaneEnd::IsDecided(uint64_t number) const {
  return closed_ || SlotWord::Of(SlotOf(number).word.load()).decision != MessageDecision::kCapture;
}

LaneMemory::GraphFlags* LaneEnd::ResolveCapture(uint64_t number) {
  if (closed_) return nullptr;
  uint64_t packed =
      SlotWord{.number = number, .decision = MessageDecision::kCapture, .matched = false}.Packed();
  const SlotWord none = {.number = number, .decision = MessageDecision::kClosed, .matched = false};
  std::atomic<uint64_t>& word = SlotOf(number).word;
  closed_ = word.compare_exchange_strong(packed, none.Packed()) ||
            SlotWord::Of(packed).decision != MessageDecision::kGraph;
  if (closed_) return nullptr;
  // Set kMatched only after the decision. From then on the peer may use the slot for a later
  // message.
  word.fetch_or(kMatched);
  return NextGraphFlags();
}

bool LaneEnd::IsInGraph(uint64_t allocation) const {
  return std::ranges::find(graph_allocations_, allocation) != graph_allocations_.end();
}

LaneMemory::GraphFlags* LaneEnd::NextGraphFlags() {
  LaneMemory::GraphFlags& graph_flags = memory_.graph_flags[graph_messages_++];
  memory_.graph_messages.store(graph_messages_);
  return &graph_flags;
}

void MarkBroken(LaneMemory& lane, LaneMemory::Broken state) {
  uint32_t usable = LaneMemory::kUsable;
  if (state == LaneMemory::kBrokenIncomplete) {
    lane.broken.store(state);
  } else {
    lane.broken.compare_exchange_strong(usable, state);
  }
}

void BreakLane(LaneMemory& lane, LaneMemory::Broken state) {
  MarkBroken(lane, state);
  // Look for incomplete messages only after marking the lane. A message that is posted meanwhile is
  // found here, or the side that posts it finds the lane broken.
  if (HasIncomplete(lane)) MarkBroken(lane, LaneMemory::kBrokenIncomplete);
  for (MessageSlot& slot : lane.slots) {
    const uint32_t value = FlagValue(SlotWord::Of(slot.word.load()).number) + kFarAhead;
    slot.ready.store(value);
    slot.done.store(value);
    slot.copied.store(value);
  }
  EndRepeatedWaits(lane);
}

void EndRepeatedWaits(LaneMemory& lane) {
  vccl::EndWaits(lane.vccl);
  for (uint32_t i = 0; i < std::min(lane.graph_messages.load(), LaneMemory::kGraphMessages); ++i) {
    lane.graph_flags[i].ready.store(kFarAhead);
    lane.graph_flags[i].done.store(kFarAhead);
  }
}

}  // namespace nccltune::sendrecv
