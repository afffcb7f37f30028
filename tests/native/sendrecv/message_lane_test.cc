// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/lane/gate.h"
#include "sendrecv/world.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kLongest = 1 << 20;

// Both sides of a lane whose gate is open.
struct Pair {
  explicit Pair(uint64_t ring = LaneMemory::kSlots)
      : sender(*memory, gate.memory, Role::kSender, ring),
        receiver(*memory, gate.memory, Role::kReceiver, ring) {
    EXPECT_TRUE(sender.PassGate() && receiver.PassGate());
  }
  MessageSlot& Of(uint64_t number) const { return sender.SlotOf(number); }

  std::unique_ptr<LaneMemory> memory = std::make_unique<LaneMemory>();
  OpenedGate gate;
  LaneEnd sender;
  LaneEnd receiver;
};

TEST(Lane, AWordKeepsWhatItIsMadeOf) {
  for (const uint64_t number : {uint64_t{1}, uint64_t{1} << 40}) {
    for (const MessageDecision decision :
         {MessageDecision::kNative, MessageDecision::kPush, MessageDecision::kPull,
          MessageDecision::kFetch, MessageDecision::kClosed, MessageDecision::kBuffered}) {
      for (const bool matched : {false, true}) {
        const SlotWord word = {.number = number, .decision = decision, .matched = matched};
        const SlotWord again = SlotWord::Of(word.Packed());
        EXPECT_EQ(again.number, number);
        EXPECT_EQ(again.decision, decision);
        EXPECT_EQ(again.matched, matched);
      }
    }
  }
}

TEST(Lane, TheFirstDecidesAndTheSecondFollows) {
  Pair pair;
  const PostedMessage first = pair.receiver.Post(kLongest, 7, 512, MessageDecision::kPush);
  EXPECT_TRUE(first.first);
  EXPECT_EQ(first.number, 1U);
  EXPECT_TRUE(pair.sender.IsDecidedByPeer());
  const PostedMessage second = pair.sender.Post(kLongest, 8, 0, MessageDecision::kNative);
  EXPECT_FALSE(second.first);
  EXPECT_EQ(second.number, 1U);
  EXPECT_EQ(second.decision, MessageDecision::kPush);
  EXPECT_EQ(second.theirs.allocation, 7U);
  EXPECT_EQ(second.theirs.offset, 512U);
  EXPECT_EQ(second.theirs.bytes, kLongest);
}

TEST(Lane, IsFreshUntilBothHavePassedAMessage) {
  const auto memory = std::make_unique<LaneMemory>();
  GateMemory gate;
  LaneEnd sender(*memory, gate, Role::kSender);
  LaneEnd receiver(*memory, gate, Role::kReceiver);
  sender.CountNative();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(sender.PassGate()) << "the peer is not there";
  EXPECT_TRUE(sender.IsFresh());
  EXPECT_FALSE(receiver.PassGate()) << "the first message is NCCL's";
  EXPECT_TRUE(sender.PassGate());
  EXPECT_FALSE(sender.IsFresh());
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(receiver.PassGate()) << "these were NCCL's there";
  EXPECT_TRUE(receiver.PassGate());
  EXPECT_FALSE(receiver.IsFresh());
  // Now the counts of both sides match.
  receiver.CountNative();
  sender.Post(kLongest, 0, 0, MessageDecision::kNative);
  const PostedMessage second = receiver.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_EQ(second.mine.earlier_messages, second.theirs.earlier_messages);
  EXPECT_EQ(second.mine.earlier_messages, 4U);
}

// A running peer overwrites the counters of a buffer after the lane was broken.
TEST(Lane, ABrokenBuffersCountersAreSetAheadAgain) {
  Pair pair;
  vccl::SharedState::Channel& channel = pair.memory->vccl.channels[1];
  channel.enqueued = 41;
  pair.sender.Break();
  EXPECT_TRUE(Reached(channel.filled, 1000));
  EXPECT_TRUE(Reached(channel.emptied, 1000));
  channel.filled = 40;
  EndRepeatedWaits(*pair.memory);
  EXPECT_TRUE(Reached(channel.filled, 1000));
  for (int i = 0; i < 5; ++i) EndRepeatedWaits(*pair.memory);
  EXPECT_TRUE(Reached(channel.filled, 1000)) << "not so far that it seems to lie behind";
}

TEST(Lane, IsReadyOnceTheReceiversStreamIsThere) {
  Pair pair;
  EXPECT_FALSE(pair.sender.IsReceiverReady());
  pair.receiver.Post(kLongest, 0, 0, MessageDecision::kPush);
  EXPECT_FALSE(pair.sender.IsReceiverReady());
  pair.Of(1).ready = FlagValue(1);
  EXPECT_TRUE(pair.sender.IsReceiverReady());
  pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_FALSE(pair.sender.IsReceiverReady()) << "of the next one nothing is known";
}

TEST(Lane, CountsWhatIsTooSmallForASlot) {
  Pair pair;
  pair.sender.CountNative();
  pair.sender.CountNative();
  pair.receiver.CountNative();
  pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative);
  const PostedMessage second = pair.receiver.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_EQ(second.theirs.earlier_messages, 2U);
  EXPECT_EQ(second.mine.earlier_messages, 1U);
}

TEST(Lane, ASlotIsUsedAgainWhenItsMessageIsOver) {
  Pair pair;
  for (uint64_t i = 1; i <= LaneMemory::kSlots; ++i) {
    ASSERT_TRUE(pair.receiver.HasFreeSlot());
    pair.receiver.Post(kLongest, 0, 0, i == 1 ? MessageDecision::kPush : MessageDecision::kNative);
  }
  EXPECT_FALSE(pair.receiver.HasFreeSlot()) << "the first one is not matched";
  pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_FALSE(pair.receiver.HasFreeSlot()) << "its bytes are not copied";
  pair.Of(1).done = FlagValue(1);
  EXPECT_TRUE(pair.receiver.HasFreeSlot());
  // NCCL carries the second message. Its slot is complete when both sides have posted it.
  pair.receiver.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_FALSE(pair.receiver.HasFreeSlot());
  pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_TRUE(pair.receiver.HasFreeSlot());
}

// Posts the next message of one side. Returns whether it has a slot.
bool Take(LaneEnd& end, MessageDecision decision = MessageDecision::kPush) {
  return end.PassGate() && !end.Post(kLongest, 0, 0, decision).full;
}

// The receiver is ahead. NCCL carries all messages beyond the ring on both sides, even if slots are
// free when the sender arrives.
TEST(Lane, WhatFindsTheRingFullIsNcclsForBoth) {
  Pair pair(4);
  std::vector<bool> receiver;
  for (int i = 0; i < 10; ++i) receiver.push_back(Take(pair.receiver));
  std::vector<bool> sender;
  for (uint64_t i = 1; i <= 10; ++i) {
    sender.push_back(Take(pair.sender));
    if (i <= 4) pair.Of(i).done = FlagValue(i);
  }
  EXPECT_EQ(receiver, (std::vector<bool>{1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sender, receiver);
  // All messages are complete, so the next one has a slot again.
  EXPECT_TRUE(Take(pair.sender));
  EXPECT_TRUE(Take(pair.receiver));
  EXPECT_EQ(pair.sender.next(), 6U) << "messages without a slot have no number";
  EXPECT_EQ(pair.receiver.next(), 6U);
}

TEST(Lane, StaysShutUntilTheNextHalfOfTheRingIsFree) {
  Pair pair(4);
  for (int i = 0; i < 4; ++i) Take(pair.receiver);
  for (int i = 0; i < 4; ++i) Take(pair.sender);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Take(pair.receiver));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Take(pair.sender));
  for (const uint64_t i : {1U, 3U, 4U}) pair.Of(i).done = FlagValue(i);
  EXPECT_FALSE(Take(pair.sender)) << "message 2 is under way";
  pair.Of(2).done = FlagValue(2);
  EXPECT_FALSE(Take(pair.receiver)) << "it was NCCL's for the sender";
  EXPECT_TRUE(Take(pair.receiver));
  EXPECT_TRUE(Take(pair.sender));
}

// One side passes through two periods while the other is still in the first.
TEST(Lane, ANewPeriodBeginsWhileThePeerIsInTheOneBefore) {
  Pair pair(8);
  std::vector<bool> receiver;
  std::vector<bool> sender;
  for (int i = 0; i < 12; ++i) receiver.push_back(Take(pair.receiver));
  for (int i = 0; i < 10; ++i) sender.push_back(Take(pair.sender));
  for (uint64_t i = 1; i <= 8; ++i) pair.Of(i).done = FlagValue(i);
  // This side is two messages ahead. It opens the gate, fills the ring and shuts the gate again.
  for (int i = 0; i < 20; ++i) receiver.push_back(Take(pair.receiver));
  for (size_t i = sender.size(); i < receiver.size(); ++i) sender.push_back(Take(pair.sender));
  EXPECT_EQ(sender, receiver);
  EXPECT_EQ(std::count(sender.begin(), sender.end(), true), 16);
  for (uint64_t i = 9; i <= 16; ++i) pair.Of(i).done = FlagValue(i);
  EXPECT_TRUE(Take(pair.sender));
  EXPECT_TRUE(Take(pair.receiver));
}

TEST(Lane, IsClosedForGoodWhileItsRingIsFull) {
  for (const bool marked : {false, true}) {
    Pair pair(2);
    for (int i = 0; i < (marked ? 5 : 2); ++i) Take(pair.receiver);
    Take(pair.sender);
    Take(pair.sender);
    EXPECT_TRUE(pair.sender.Close());
    EXPECT_TRUE(pair.sender.closed());
    EXPECT_FALSE(Take(pair.receiver));
    EXPECT_TRUE(pair.receiver.closed());
  }
}

// The peer is beyond the message at which it opened the gate. Messages that it decided for NCCL are
// skipped. A message that it decided for a copy engine cannot be closed.
TEST(Lane, IsClosedBehindAGateThatThePeerHasOpened) {
  for (const MessageDecision decision : {MessageDecision::kNative, MessageDecision::kPush}) {
    Pair pair(8);
    for (int i = 0; i < 12; ++i) Take(pair.receiver);
    for (int i = 0; i < 10; ++i) Take(pair.sender);
    for (uint64_t i = 1; i <= 8; ++i) pair.Of(i).done = FlagValue(i);
    EXPECT_TRUE(Take(pair.receiver, decision));
    EXPECT_EQ(pair.sender.Close(), decision == MessageDecision::kNative);
    EXPECT_FALSE(pair.sender.closed());
  }
}

TEST(Lane, ADecisionThatThePeerCannotMakeIsNotFollowed) {
  for (const MessageDecision decision :
       {MessageDecision::kPull, MessageDecision::kFetch, MessageDecision::kGraph}) {
    Pair pair;
    pair.receiver.Post(kLongest, 0, 0, decision);
    EXPECT_TRUE(pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative).invalid);
  }
  Pair pair;
  pair.sender.Post(kLongest, 0, 0, MessageDecision::kPush);
  EXPECT_TRUE(pair.receiver.Post(kLongest, 0, 0, MessageDecision::kNative).invalid);
}

TEST(Lane, HalvesThatDifferAreADisagreement) {
  const SlotHalf sent = {.bytes = 8, .earlier_messages = 2, .allocation = 1, .offset = 0};
  SlotHalf received = {.bytes = 8, .earlier_messages = 2, .allocation = 7, .offset = 64};
  EXPECT_EQ(DescribeMismatch(sent, received), "");
  for (const uint64_t bytes : {7U, 9U}) {
    received.bytes = bytes;
    EXPECT_EQ(DescribeMismatch(sent, received), "message 3 has 8 bytes at the sender and " +
                                                    std::to_string(bytes) + " at the receiver");
  }
  received.bytes = 8;
  for (const uint64_t before : {1U, 3U}) {
    received.earlier_messages = before;
    EXPECT_NE(DescribeMismatch(sent, received), "") << before << " messages before";
  }
}

TEST(Lane, KnowsWhatIsSentAndNotOver) {
  Pair pair;
  EXPECT_FALSE(HasUnreceivedSends(*pair.memory));
  for (const MessageDecision decision : {MessageDecision::kFetch, MessageDecision::kPull}) {
    const uint64_t number = pair.sender.Post(kLongest, 7, 0, decision).number;
    EXPECT_TRUE(HasUnreceivedSends(*pair.memory));
    pair.receiver.Post(kLongest, 0, 0, MessageDecision::kNative);
    EXPECT_TRUE(HasUnreceivedSends(*pair.memory)) << "posted but not copied";
    pair.Of(number).done.store(FlagValue(number));
    EXPECT_FALSE(HasUnreceivedSends(*pair.memory));
  }
  const uint64_t number = pair.receiver.Post(kLongest, 7, 0, MessageDecision::kPush).number;
  EXPECT_FALSE(HasUnreceivedSends(*pair.memory)) << "it may never be";
  pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_TRUE(HasUnreceivedSends(*pair.memory));
  pair.Of(number).done.store(FlagValue(number));
  EXPECT_FALSE(HasUnreceivedSends(*pair.memory));
}

TEST(Lane, WhatBothCaptureHasFlagsOfItsOwn) {
  Pair pair;
  for (uint32_t i = 0; i < 3; ++i) {
    const CapturedMessage first = pair.sender.Capture(kLongest, 7, 512);
    ASSERT_EQ(first.state, CapturedMessage::State::kFirst);
    EXPECT_FALSE(pair.sender.IsDecided(first.number));
    const CapturedMessage second = pair.receiver.Capture(kLongest, 8, 0);
    ASSERT_EQ(second.state, CapturedMessage::State::kSecond);
    EXPECT_EQ(second.number, first.number);
    EXPECT_EQ(second.theirs.allocation, 7U);
    EXPECT_EQ(second.theirs.offset, 512U);
    LaneMemory::GraphFlags* const flags = pair.receiver.AcceptCapture(true);
    EXPECT_EQ(flags, &pair.memory->graph_flags[i]);
    EXPECT_TRUE(pair.sender.IsDecided(first.number));
    EXPECT_EQ(pair.sender.ResolveCapture(first.number), flags);
    EXPECT_TRUE(IsComplete(pair.Of(first.number)));
  }
  EXPECT_FALSE(pair.sender.closed() || pair.receiver.closed());
  // Messages with slots between the captured ones keep their own numbers.
  EXPECT_EQ(pair.receiver.Post(kLongest, 0, 0, MessageDecision::kPush).number, 4U);
  EXPECT_EQ(pair.sender.Post(kLongest, 0, 0, MessageDecision::kNative).decision,
            MessageDecision::kPush);
}

TEST(Lane, MemoryOfACapturedMessageStaysInTheGraph) {
  Pair pair;
  EXPECT_FALSE(pair.sender.IsInGraph(7));
  const uint64_t number = pair.sender.Capture(kLongest, 7, 512).number;
  EXPECT_TRUE(pair.sender.IsInGraph(7)) << "the peer may accept it at any time";
  pair.receiver.Capture(kLongest, 8, 0);
  ASSERT_NE(pair.receiver.AcceptCapture(true), nullptr);
  ASSERT_NE(pair.sender.ResolveCapture(number), nullptr);
  // Their slots are reused.
  for (uint64_t i = 0; i < 2 * LaneMemory::kSlots; ++i) {
    const uint64_t next = pair.receiver.Post(kLongest, 9, 0, MessageDecision::kPush).number;
    pair.sender.Post(kLongest, 10, 0, MessageDecision::kPush);
    pair.Of(next).done.store(FlagValue(next));
  }
  EXPECT_TRUE(pair.sender.IsInGraph(7));
  EXPECT_FALSE(pair.sender.IsInGraph(10)) << "not captured";
  EXPECT_FALSE(pair.receiver.IsInGraph(8)) << "the receiver copies to its own address";
}

TEST(Lane, WhatOneSideAloneCapturesClosesIt) {
  for (int how = 0; how < 5; ++how) {
    Pair pair;
    const uint64_t number = pair.sender.Capture(kLongest, 7, 0).number;
    if (how == 0) {
      // The peer does not post the message in time.
      EXPECT_EQ(pair.sender.ResolveCapture(number), nullptr);
      EXPECT_EQ(pair.receiver.Capture(kLongest, 0, 0).state, CapturedMessage::State::kClosed);
    } else if (how == 1) {
      EXPECT_EQ(pair.receiver.Capture(kLongest, 0, 0).state, CapturedMessage::State::kSecond);
      EXPECT_EQ(pair.receiver.AcceptCapture(false), nullptr);
    } else if (how == 2) {
      EXPECT_EQ(pair.receiver.Capture(kLongest, 0, 0).state, CapturedMessage::State::kSecond);
      EXPECT_EQ(pair.sender.ResolveCapture(number), nullptr) << "just before the other accepts";
      EXPECT_EQ(pair.receiver.AcceptCapture(true), nullptr);
    } else if (how == 3) {
      EXPECT_EQ(pair.receiver.Post(kLongest, 0, 0, MessageDecision::kPush).decision,
                MessageDecision::kClosed);
    } else {
      EXPECT_TRUE(pair.receiver.Close());
    }
    EXPECT_EQ(pair.sender.ResolveCapture(number), nullptr) << how;
    EXPECT_TRUE(pair.sender.closed()) << how;
    EXPECT_TRUE(pair.receiver.closed()) << how;
  }
}

TEST(Lane, HasFlagsForSoManyMessagesOfGraphs) {
  Pair pair;
  for (uint32_t i = 0; i <= LaneMemory::kGraphMessages; ++i) {
    const uint64_t number = pair.sender.Capture(kLongest, 7, 0).number;
    pair.receiver.Capture(kLongest, 7, 0);
    const bool there = pair.receiver.AcceptCapture(true) != nullptr;
    EXPECT_EQ(there, i < LaneMemory::kGraphMessages);
    EXPECT_EQ(pair.sender.ResolveCapture(number) != nullptr, there);
  }
  EXPECT_TRUE(pair.sender.closed() && pair.receiver.closed());
  pair.sender.Break();
  EXPECT_TRUE(Reached(pair.memory->graph_flags.back().done.load(), 1));
  EXPECT_TRUE(Reached(pair.memory->graph_flags.back().ready.load(), 1));
}

TEST(Lane, BreakingEndsEveryWait) {
  Pair pair;
  for (uint64_t i = 1; i <= LaneMemory::kSlots + 3; ++i) {
    pair.receiver.Post(kLongest, 0, 0, MessageDecision::kPush);
    pair.sender.Post(kLongest, 0, 0, MessageDecision::kPush);
    if (i <= 3) pair.Of(i).done = FlagValue(i);
  }
  pair.sender.Break();
  EXPECT_TRUE(pair.receiver.broken());
  for (uint64_t i = 4; i <= LaneMemory::kSlots + 3; ++i) {
    EXPECT_TRUE(Reached(pair.Of(i).ready, FlagValue(i)));
    EXPECT_TRUE(Reached(pair.Of(i).done, FlagValue(i)));
  }
  // The waits of a message that the peer posts at the time of the break end as well.
  const uint64_t next = LaneMemory::kSlots + 4;
  EXPECT_TRUE(Reached(pair.Of(next).done, FlagValue(next)));
}

TEST(Lane, AnEndedLaneHasFailedIfAMessageIsIncomplete) {
  Pair idle;
  BreakLane(*idle.memory, LaneMemory::kEnded);
  EXPECT_TRUE(idle.sender.broken() && idle.sender.ended());
  MarkBroken(*idle.memory, LaneMemory::kBrokenIdle);
  EXPECT_TRUE(idle.sender.ended()) << "the first state stays";
  Pair posted;
  posted.receiver.Post(kLongest, 0, 0, MessageDecision::kPush);
  BreakLane(*posted.memory, LaneMemory::kEnded);
  EXPECT_TRUE(posted.sender.broken());
  EXPECT_FALSE(posted.sender.ended());
}

TEST(Lane, ClosesBehindWhatThePeerGaveToNccl) {
  Pair pair;
  pair.receiver.Post(kLongest, 0, 0, MessageDecision::kNative);
  EXPECT_TRUE(pair.sender.Close());
  EXPECT_FALSE(pair.sender.closed()) << "the peer has already posted a message";
  EXPECT_TRUE(pair.sender.Close());
  EXPECT_TRUE(pair.sender.closed());
  EXPECT_FALSE(pair.receiver.closed()) << "it does not know yet";
  EXPECT_EQ(pair.receiver.Post(kLongest, 0, 0, MessageDecision::kPush).decision,
            MessageDecision::kClosed);
  EXPECT_TRUE(pair.receiver.closed());
  EXPECT_TRUE(pair.receiver.Close());
}

TEST(Lane, BothMayCloseIt) {
  Pair pair;
  EXPECT_TRUE(pair.sender.Close());
  EXPECT_TRUE(pair.receiver.Close());
  EXPECT_TRUE(pair.sender.closed() && pair.receiver.closed());
}

TEST(Lane, IsNotClosedBeforeAMessageOfACopyEngine) {
  Pair pair;
  pair.receiver.Post(kLongest, 0, 0, MessageDecision::kPush);
  EXPECT_FALSE(pair.sender.Close());
  EXPECT_FALSE(pair.sender.closed());
}

TEST(Lane, FlagsCountOnBeyondTheirWidth) {
  EXPECT_TRUE(Reached(FlagValue((uint64_t{1} << 32) + 5), FlagValue((uint64_t{1} << 32) - 5)));
  EXPECT_FALSE(Reached(FlagValue((uint64_t{1} << 32) - 5), FlagValue((uint64_t{1} << 32) + 5)));
}

// Two threads post at once, many times. One is always first, and both see the same decision.
TEST(Lane, TwoThatComeAtOnceAgree) {
  constexpr uint64_t kMessages = 20'000;
  Pair pair;
  std::array<std::vector<PostedMessage>, 2> seen;
  const auto run = [&](LaneEnd& end, MessageDecision decision) {
    std::vector<PostedMessage>& mine = seen[static_cast<size_t>(end.role())];
    mine.reserve(kMessages);
    for (uint64_t i = 1; i <= kMessages; ++i) {
      while (!end.HasFreeSlot()) std::this_thread::yield();
      mine.push_back(end.Post(i, i, 2 * i, decision));
      if (!mine.back().first) pair.Of(i).done = FlagValue(i);
    }
  };
  std::thread other([&] { run(pair.sender, MessageDecision::kPull); });
  run(pair.receiver, MessageDecision::kPush);
  other.join();
  for (uint64_t i = 0; i < kMessages; ++i) {
    const PostedMessage& sender = seen[0][i];
    const PostedMessage& receiver = seen[1][i];
    ASSERT_NE(sender.first, receiver.first) << i;
    ASSERT_EQ(sender.decision, receiver.decision) << i;
    ASSERT_EQ(sender.decision, sender.first ? MessageDecision::kPull : MessageDecision::kPush);
    const PostedMessage& second = sender.first ? receiver : sender;
    ASSERT_EQ(second.theirs.bytes, i + 1);
    ASSERT_EQ(second.theirs.offset, 2 * (i + 1));
  }
}

// Two threads with a small ring: each message has a slot on both sides or on neither.
TEST(Lane, TwoThatFillTheRingAtOnceAgree) {
  constexpr uint64_t kMessages = 30'000;
  for (const uint64_t ring : {2U, 4U, 16U}) {
    Pair pair(ring);
    std::array<std::vector<bool>, 2> seen;
    const auto run = [&](LaneEnd& end) {
      std::vector<bool>& mine = seen[static_cast<size_t>(end.role())];
      for (uint64_t i = 1; i <= kMessages; ++i) {
        // Yields now and then, so that the other thread gets ahead.
        if (i % 97 == (end.role() == Role::kSender ? 0 : 50)) std::this_thread::yield();
        if (!end.PassGate()) {
          mine.push_back(false);
          continue;
        }
        const PostedMessage posted = end.Post(kLongest, 0, 0, MessageDecision::kBuffered);
        mine.push_back(!posted.full);
        if (!posted.full && !posted.first) pair.Of(posted.number).done = FlagValue(posted.number);
      }
    };
    std::thread other([&] { run(pair.sender); });
    run(pair.receiver);
    other.join();
    ASSERT_EQ(seen[0], seen[1]) << ring;
  }
}

struct Sides {
  GateMemory memory;
  std::array<Gate, 2> gates = {Gate(memory, Role::kSender), Gate(memory, Role::kReceiver)};
};

TEST(Gate, AWordKeepsWhatItIsMadeOf) {
  for (const int64_t lead : {int64_t{0}, int64_t{-1}, int64_t{5}, int64_t{1} << 46}) {
    for (uint32_t bits = 0; bits < 32; ++bits) {
      const GateState state = {.period = 2047 - bits,
                               .entered = {(bits & 1) != 0, (bits & 2) != 0},
                               .opened = (bits & 4) != 0,
                               .closed = (bits & 8) != 0,
                               .unusable = (bits & 16) != 0,
                               .lead = lead};
      const GateState again = GateState::Of(state.Packed());
      EXPECT_EQ(again.Packed(), state.Packed());
      EXPECT_EQ(again.period, state.period);
      EXPECT_EQ(again.entered, state.entered);
      EXPECT_EQ(again.opened, state.opened);
      EXPECT_EQ(again.closed, state.closed);
      EXPECT_EQ(again.unusable, state.unusable);
      EXPECT_EQ(again.lead, lead);
    }
  }
}

TEST(Gate, OpensWhenBothHavePassedAMessage) {
  Sides sides;
  EXPECT_EQ(sides.gates[0].Pass(true, 0), Gate::Step::kNative);
  EXPECT_EQ(sides.gates[0].Pass(true, 9), Gate::Step::kNative) << "the peer has passed none";
  EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kNative) << "NCCL has it at the peer";
  EXPECT_EQ(sides.gates[0].Pass(false, 9), Gate::Step::kNative) << "it may not be opened";
  EXPECT_EQ(sides.gates[0].Pass(true, 1), Gate::Step::kNative) << "too far ahead";
  EXPECT_EQ(sides.gates[0].Pass(true, 3), Gate::Step::kOpen);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kNative);
  EXPECT_EQ(sides.gates[1].Pass(false, 0), Gate::Step::kOpen) << "as the peer has decided";
  EXPECT_EQ(sides.gates[0].mark(), sides.gates[1].mark());
}

TEST(Gate, ClosesForBothAndReportsWhy) {
  for (const bool unusable : {false, true}) {
    Sides sides;
    EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kNative);
    EXPECT_TRUE(sides.gates[0].CloseForGood(unusable));
    EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kClosed);
    EXPECT_EQ(sides.gates[1].is_unusable(), unusable);
    EXPECT_FALSE(sides.gates[1].has_opened());
    EXPECT_TRUE(sides.gates[1].CloseForGood());
  }
}

// Two sides call in a random order. They open the gate when they may, and shut it at messages that
// both know, as with a full ring. Each message must have a slot on both sides or on neither.
TEST(Gate, BothSidesAgreeOnEachMessage) {
  size_t opened = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    Sides sides;
    std::array<std::string, 2> seen;
    // For each period: how many messages after opening the gate is shut again.
    std::vector<uint32_t> shut(100);
    for (uint32_t& each : shut) each = 1 + below(6);
    std::array<size_t, 2> periods = {};
    std::array<uint32_t, 2> open = {};
    const uint32_t bias = below(10);
    for (int i = 0; i < 120; ++i) {
      size_t side = below(10) < bias ? 0 : 1;
      if (seen[side].size() == 60) side = 1 - side;
      Gate& gate = sides.gates[side];
      if (open[side] == 0) {
        const Gate::Step step = gate.Pass(below(3) != 0, below(20));
        ASSERT_NE(step, Gate::Step::kClosed);
        if (step == Gate::Step::kNative) {
          seen[side] += 'n';
          continue;
        }
        open[side] = shut[periods[side]++];
        ++opened;
      }
      seen[side] += 's';
      if (--open[side] == 0) gate.Shut();
    }
    ASSERT_EQ(seen[0], seen[1]) << seed;
  }
  EXPECT_GT(opened, 3000U);
}

// The same with two threads.
TEST(Gate, BothSidesAgreeWhenTheyComeAtOnce) {
  constexpr size_t kMessages = 50'000;
  Sides sides;
  std::array<std::vector<bool>, 2> seen;
  const auto run = [&](size_t side) {
    Gate& gate = sides.gates[side];
    size_t open = 0;
    for (size_t i = 0; i < kMessages; ++i) {
      if (i % 61 == 30 * side) std::this_thread::yield();
      if (open == 0 && gate.Pass(i % 3 != 0, 50) == Gate::Step::kOpen) open = 5;
      seen[side].push_back(open > 0);
      if (open > 0 && --open == 0) gate.Shut();
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace nccltune::sendrecv
