// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane.h"

#include <algorithm>
#include <array>
#include <optional>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kVerdictBits = 7;
constexpr uint64_t kMet = 8;
constexpr int kNumberShift = 4;
// Ahead of every number that is waited for, and not so far that it seems to lie behind.
constexpr uint32_t kFarAhead = 1U << 30;

}  // namespace

Word Word::Of(uint64_t packed) {
  return {.number = packed >> kNumberShift,
          .verdict = static_cast<Verdict>(packed & kVerdictBits),
          .met = (packed & kMet) != 0};
}

uint64_t Word::Packed() const {
  return number << kNumberShift | static_cast<uint64_t>(verdict) | (met ? kMet : 0);
}

bool IsOver(const Slot& slot) {
  const Word word = Word::Of(slot.word.load());
  if (word.number == 0 || word.verdict == Verdict::kClosed) return true;
  if (!word.met) return false;
  return word.verdict == Verdict::kNative || word.verdict == Verdict::kGraph ||
         Reached(slot.done.load(), FlagValue(word.number));
}

// A graph may run at any time.
bool HasOpen(const LaneMemory& lane) {
  return lane.graphs.load() != 0 ||
         std::ranges::any_of(lane.slots, [](const Slot& slot) { return !IsOver(slot); });
}

std::string OpenWords(const LaneMemory& lane, std::string_view name) {
  struct Known {
    std::string_view what;
    std::optional<Role> first;  // nothing: it may be either
  };
  constexpr std::array<Known, 7> kKnown = {{{"NCCL's", {}},
                                            {"pushed", Role::kReceiver},
                                            {"pulled", Role::kSender},
                                            {"fetched", Role::kSender},
                                            {"NCCL's from here on", {}},
                                            {"through the buffer", {}},
                                            {"captured", {}}}};
  std::string words;
  for (const Slot& slot : lane.slots) {
    const Word word = Word::Of(slot.word.load());
    const auto verdict = static_cast<size_t>(word.verdict);
    if (IsOver(slot) || verdict >= kKnown.size()) continue;
    const auto& [what, first] = kKnown[verdict];
    const Half& half = slot.halves[static_cast<size_t>(first.value_or(Role::kSender))];
    words += std::string(name) + ": message " + std::to_string(word.number) + ", ";
    if (first) words += std::to_string(half.bytes) + " bytes, ";
    words += what;
    if (word.met) {
      words += ": sent and received";
    } else if (first) {
      words += *first == Role::kSender ? ": sent, not received" : ": received, not sent";
    } else {
      words += ": called on one side";
    }
    const uint32_t value = FlagValue(word.number);
    if (Reached(slot.ready.load(), value)) words += ", the first stream is there";
    words += '\n';
  }
  return words;
}

bool HasSent(const LaneMemory& lane) {
  if (lane.broken.load() != LaneMemory::kWhole) return false;
  return std::ranges::any_of(lane.slots, [](const Slot& slot) {
    const Word word = Word::Of(slot.word.load());
    const bool first = word.verdict == Verdict::kPull || word.verdict == Verdict::kFetch;
    const bool second = word.verdict == Verdict::kPush && word.met;
    return (first || second) && !IsOver(slot);
  });
}

std::string Disagreement(uint64_t number, const Half& sent, const Half& received) {
  const std::string which = "message " + std::to_string(number) + " ";
  if (sent.bytes != received.bytes) {
    return which + "has " + std::to_string(sent.bytes) + " bytes where it is sent and " +
           std::to_string(received.bytes) + " where it is received";
  }
  if (sent.before != received.before) {
    return which + "comes after " + std::to_string(sent.before) +
           " others where it is sent and after " + std::to_string(received.before) +
           " where it is received: a smaller one differed in size";
  }
  return "";
}

std::string FindDisagreement(const LaneMemory& lane) {
  const uint64_t number = lane.differs.load();
  if (number == 0) return "";
  const Slot& slot = lane.slots[number % LaneMemory::kSlots];
  return Disagreement(number, slot.halves[static_cast<size_t>(Role::kSender)],
                      slot.halves[static_cast<size_t>(Role::kReceiver)]);
}

bool LaneEnd::HasRoom() const { return Told() || IsOver(NextSlot()) || broken(); }

bool LaneEnd::Told() const { return Word::Of(NextSlot().word.load()).number == next(); }

bool LaneEnd::Ready() const {
  const Slot& slot = NextSlot();
  const Word word = Word::Of(slot.word.load());
  return word.number == next() && word.verdict == Verdict::kPush &&
         Reached(slot.ready.load(), FlagValue(next()));
}

Arrived LaneEnd::Arrive(uint64_t bytes, uint64_t allocation, uint64_t offset, Verdict verdict) {
  Slot& slot = NextSlot();
  Arrived arrived;
  arrived.number = ++numbers_;
  arrived.mine = {
      .bytes = bytes, .before = messages_++, .allocation = allocation, .offset = offset};
  slot.halves[static_cast<size_t>(role_)] = arrived.mine;

  uint64_t packed = slot.word.load();
  if (Word::Of(packed).number != arrived.number) {
    const Word mine = {.number = arrived.number, .verdict = verdict, .met = false};
    if (slot.word.compare_exchange_strong(packed, mine.Packed())) {
      arrived.first = true;
      arrived.verdict = verdict;
      return arrived;
    }
  }
  // Whoever was first has decided, and its half was there before.
  Word word = Word::Of(packed);
  if (word.verdict == Verdict::kCapture) word = CloseInstead(packed);
  arrived.verdict = word.verdict;
  closed_ = word.verdict == Verdict::kClosed;
  if (closed_) return arrived;
  arrived.theirs = slot.halves[static_cast<size_t>(Other(role_))];
  word.met = true;
  slot.word.store(word.Packed());
  return arrived;
}

bool LaneEnd::Close() {
  Slot& slot = NextSlot();
  uint64_t packed = slot.word.load();
  const Word mine = {.number = next(), .verdict = Verdict::kClosed, .met = false};
  if (Word::Of(packed).number != next()) {
    closed_ = slot.word.compare_exchange_strong(packed, mine.Packed());
    if (closed_) return true;
  }
  Word word = Word::Of(packed);
  if (word.verdict == Verdict::kCapture) word = CloseInstead(packed);
  closed_ = word.verdict == Verdict::kClosed;
  if (closed_) return true;
  if (word.verdict != Verdict::kNative) return false;
  ++numbers_;
  word.met = true;
  slot.word.store(word.Packed());
  return true;
}

// The peer captures what is called directly here, or is not for copy engines.
Word LaneEnd::CloseInstead(uint64_t packed) const {
  Word word = Word::Of(packed);
  word.verdict = Verdict::kClosed;
  // Or the peer has given up meanwhile: it is the same.
  memory_.Of(word.number).word.compare_exchange_strong(packed, word.Packed());
  return word;
}

Captured LaneEnd::Capture(uint64_t bytes, uint64_t allocation, uint64_t offset) {
  Captured captured;
  captured.number = next();
  captured.mine = {.bytes = bytes, .before = messages_, .allocation = allocation, .offset = offset};
  Slot& slot = NextSlot();
  uint64_t packed = slot.word.load();
  if (Word::Of(packed).number != next()) {
    slot.halves[static_cast<size_t>(role_)] = captured.mine;
    const Word mine = {.number = next(), .verdict = Verdict::kCapture, .met = false};
    if (slot.word.compare_exchange_strong(packed, mine.Packed())) {
      ++numbers_;
      ++messages_;
      captured.how = Captured::How::kFirst;
      return captured;
    }
  }
  const Word word = Word::Of(packed);
  captured.theirs = slot.halves[static_cast<size_t>(Other(role_))];
  closed_ = word.verdict == Verdict::kClosed;
  if (word.verdict == Verdict::kCapture) captured.how = Captured::How::kSecond;
  if (!closed_ && word.verdict != Verdict::kCapture) captured.how = Captured::How::kDirect;
  return captured;
}

LaneMemory::Replayed* LaneEnd::Accept(bool possible) {
  const bool accepts = possible && graphs_ < LaneMemory::kReplayed;
  uint64_t packed = Word{.number = next(), .verdict = Verdict::kCapture, .met = false}.Packed();
  const Word mine = {
      .number = next(), .verdict = accepts ? Verdict::kGraph : Verdict::kClosed, .met = accepts};
  // The first may have given up.
  closed_ = !NextSlot().word.compare_exchange_strong(packed, mine.Packed()) || !accepts;
  if (closed_) return nullptr;
  ++numbers_;
  ++messages_;
  return NextReplayed();
}

bool LaneEnd::IsDecided(uint64_t number) const {
  return closed_ || Word::Of(memory_.Of(number).word.load()).verdict != Verdict::kCapture;
}

LaneMemory::Replayed* LaneEnd::Answer(uint64_t number) {
  if (closed_) return nullptr;
  uint64_t packed = Word{.number = number, .verdict = Verdict::kCapture, .met = false}.Packed();
  const Word none = {.number = number, .verdict = Verdict::kClosed, .met = false};
  std::atomic<uint64_t>& word = memory_.Of(number).word;
  closed_ = word.compare_exchange_strong(packed, none.Packed()) ||
            Word::Of(packed).verdict != Verdict::kGraph;
  return closed_ ? nullptr : NextReplayed();
}

LaneMemory::Replayed* LaneEnd::NextReplayed() {
  LaneMemory::Replayed& replayed = memory_.replayed[graphs_++];
  memory_.graphs.store(graphs_);
  return &replayed;
}

void LaneEnd::GiveUp(bool open) {
  uint32_t whole = LaneMemory::kWhole;
  if (open) {
    memory_.broken.store(LaneMemory::kOpen);
  } else {
    memory_.broken.compare_exchange_strong(whole, LaneMemory::kIdle);
  }
}

void LaneEnd::Break(bool open) {
  GiveUp(open);
  for (Slot& slot : memory_.slots) {
    const uint32_t value = FlagValue(Word::Of(slot.word.load()).number) + kFarAhead;
    slot.ready.store(value);
    slot.done.store(value);
  }
  Release();
}

void LaneEnd::Release() {
  for (LaneMemory::Channel& channel : memory_.channels) {
    const uint32_t value = channel.told.load() + kFarAhead;
    channel.filled.store(value);
    channel.emptied.store(value);
  }
  for (uint32_t i = 0; i < std::min(memory_.graphs.load(), LaneMemory::kReplayed); ++i) {
    memory_.replayed[i].ready.store(kFarAhead);
    memory_.replayed[i].done.store(kFarAhead);
  }
}

}  // namespace nccltune::sendrecv
