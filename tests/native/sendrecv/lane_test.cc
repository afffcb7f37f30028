// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kLongest = 1 << 20;

struct Pair {
  std::unique_ptr<LaneMemory> memory = std::make_unique<LaneMemory>();
  LaneEnd sender{*memory, Role::kSender};
  LaneEnd receiver{*memory, Role::kReceiver};
};

TEST(Lane, AWordKeepsWhatItIsMadeOf) {
  for (const uint64_t number : {uint64_t{1}, uint64_t{1} << 40}) {
    for (const Verdict verdict : {Verdict::kNative, Verdict::kPush, Verdict::kPull, Verdict::kFetch,
                                  Verdict::kClosed, Verdict::kFifo}) {
      for (const bool met : {false, true}) {
        const Word word = {.number = number, .verdict = verdict, .met = met};
        const Word again = Word::Of(word.Packed());
        EXPECT_EQ(again.number, number);
        EXPECT_EQ(again.verdict, verdict);
        EXPECT_EQ(again.met, met);
      }
    }
  }
}

TEST(Lane, TheFirstDecidesAndTheSecondFollows) {
  Pair pair;
  const Arrived first = pair.receiver.Arrive(kLongest, 7, 512, Verdict::kPush);
  EXPECT_TRUE(first.first);
  EXPECT_EQ(first.number, 1U);
  EXPECT_TRUE(pair.sender.Told());
  const Arrived second = pair.sender.Arrive(kLongest, 8, 0, Verdict::kNative);
  EXPECT_FALSE(second.first);
  EXPECT_EQ(second.number, 1U);
  EXPECT_EQ(second.verdict, Verdict::kPush);
  EXPECT_EQ(second.theirs.allocation, 7U);
  EXPECT_EQ(second.theirs.offset, 512U);
  EXPECT_EQ(second.theirs.bytes, kLongest);
}

TEST(Lane, IsFreshUntilItsFirstMessage) {
  Pair pair;
  pair.sender.Pass();
  EXPECT_TRUE(pair.sender.IsFresh()) << "small ones do not count";
  pair.receiver.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_TRUE(pair.sender.IsFresh()) << "each side sees its own";
  EXPECT_FALSE(pair.receiver.IsFresh());
}

// Whoever still runs writes the counters of a buffer after it was broken.
TEST(Lane, ABrokenBuffersCountersAreSetAheadAgain) {
  Pair pair;
  LaneMemory::Channel& channel = pair.memory->channels[1];
  channel.told = 41;
  pair.sender.Break();
  EXPECT_TRUE(Reached(channel.filled, 1000));
  EXPECT_TRUE(Reached(channel.emptied, 1000));
  channel.filled = 40;
  pair.sender.Release();
  EXPECT_TRUE(Reached(channel.filled, 1000));
  for (int i = 0; i < 5; ++i) pair.receiver.Release();
  EXPECT_TRUE(Reached(channel.filled, 1000)) << "not so far that it seems to lie behind";
}

TEST(Lane, IsReadyOnceTheReceiversStreamIsThere) {
  Pair pair;
  EXPECT_FALSE(pair.sender.Ready());
  pair.receiver.Arrive(kLongest, 0, 0, Verdict::kPush);
  EXPECT_FALSE(pair.sender.Ready());
  pair.memory->Of(1).ready = FlagValue(1);
  EXPECT_TRUE(pair.sender.Ready());
  pair.sender.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_FALSE(pair.sender.Ready()) << "of the next one nothing is known";
}

TEST(Lane, CountsWhatIsTooSmallForASlot) {
  Pair pair;
  pair.sender.Pass();
  pair.sender.Pass();
  pair.receiver.Pass();
  pair.sender.Arrive(kLongest, 0, 0, Verdict::kNative);
  const Arrived second = pair.receiver.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_EQ(second.theirs.before, 2U);
  EXPECT_EQ(second.mine.before, 1U);
}

TEST(Lane, ASlotIsUsedAgainWhenItsMessageIsOver) {
  Pair pair;
  for (uint64_t i = 1; i <= LaneMemory::kSlots; ++i) {
    ASSERT_TRUE(pair.receiver.HasRoom());
    pair.receiver.Arrive(kLongest, 0, 0, i == 1 ? Verdict::kPush : Verdict::kNative);
  }
  EXPECT_FALSE(pair.receiver.HasRoom()) << "nobody has come for the first";
  pair.sender.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_FALSE(pair.receiver.HasRoom()) << "its bytes are not there";
  pair.memory->Of(1).done = FlagValue(1);
  EXPECT_TRUE(pair.receiver.HasRoom());
  // The second is NCCL's: over when both have told of it.
  pair.receiver.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_FALSE(pair.receiver.HasRoom());
  pair.sender.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_TRUE(pair.receiver.HasRoom());
}

TEST(Lane, KnowsWhatIsSentAndNotOver) {
  Pair pair;
  EXPECT_FALSE(HasSent(*pair.memory));
  for (const Verdict verdict : {Verdict::kFetch, Verdict::kPull}) {
    const uint64_t number = pair.sender.Arrive(kLongest, 7, 0, verdict).number;
    EXPECT_TRUE(HasSent(*pair.memory));
    pair.receiver.Arrive(kLongest, 0, 0, Verdict::kNative);
    EXPECT_TRUE(HasSent(*pair.memory)) << "told of is not copied";
    pair.memory->Of(number).done.store(FlagValue(number));
    EXPECT_FALSE(HasSent(*pair.memory));
  }
  const uint64_t number = pair.receiver.Arrive(kLongest, 7, 0, Verdict::kPush).number;
  EXPECT_FALSE(HasSent(*pair.memory)) << "it may never be";
  pair.sender.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_TRUE(HasSent(*pair.memory));
  pair.memory->Of(number).done.store(FlagValue(number));
  EXPECT_FALSE(HasSent(*pair.memory));
}

TEST(Lane, WhatBothCaptureHasFlagsOfItsOwn) {
  Pair pair;
  for (uint32_t i = 0; i < 3; ++i) {
    const Captured first = pair.sender.Capture(kLongest, 7, 512);
    ASSERT_EQ(first.how, Captured::How::kFirst);
    EXPECT_FALSE(pair.sender.IsDecided(first.number));
    const Captured second = pair.receiver.Capture(kLongest, 8, 0);
    ASSERT_EQ(second.how, Captured::How::kSecond);
    EXPECT_EQ(second.number, first.number);
    EXPECT_EQ(second.theirs.allocation, 7U);
    EXPECT_EQ(second.theirs.offset, 512U);
    LaneMemory::Replayed* const flags = pair.receiver.Accept(true);
    EXPECT_EQ(flags, &pair.memory->replayed[i]);
    EXPECT_TRUE(pair.sender.IsDecided(first.number));
    EXPECT_EQ(pair.sender.Answer(first.number), flags);
    EXPECT_TRUE(IsOver(pair.memory->Of(first.number)));
  }
  EXPECT_FALSE(pair.sender.closed() || pair.receiver.closed());
  // Others have their numbers beside.
  EXPECT_EQ(pair.receiver.Arrive(kLongest, 0, 0, Verdict::kPush).number, 4U);
  EXPECT_EQ(pair.sender.Arrive(kLongest, 0, 0, Verdict::kNative).verdict, Verdict::kPush);
}

TEST(Lane, WhatOneSideAloneCapturesClosesIt) {
  for (int how = 0; how < 5; ++how) {
    Pair pair;
    const uint64_t number = pair.sender.Capture(kLongest, 7, 0).number;
    if (how == 0) {
      // Nobody comes in time.
      EXPECT_EQ(pair.sender.Answer(number), nullptr);
      EXPECT_EQ(pair.receiver.Capture(kLongest, 0, 0).how, Captured::How::kClosed);
    } else if (how == 1) {
      EXPECT_EQ(pair.receiver.Capture(kLongest, 0, 0).how, Captured::How::kSecond);
      EXPECT_EQ(pair.receiver.Accept(false), nullptr);
    } else if (how == 2) {
      EXPECT_EQ(pair.receiver.Capture(kLongest, 0, 0).how, Captured::How::kSecond);
      EXPECT_EQ(pair.sender.Answer(number), nullptr) << "just before the other accepts";
      EXPECT_EQ(pair.receiver.Accept(true), nullptr);
    } else if (how == 3) {
      EXPECT_EQ(pair.receiver.Arrive(kLongest, 0, 0, Verdict::kPush).verdict, Verdict::kClosed);
    } else {
      EXPECT_TRUE(pair.receiver.Close());
    }
    EXPECT_EQ(pair.sender.Answer(number), nullptr) << how;
    EXPECT_TRUE(pair.sender.closed()) << how;
    EXPECT_TRUE(pair.receiver.closed()) << how;
  }
}

TEST(Lane, HasFlagsForSoManyMessagesOfGraphs) {
  Pair pair;
  for (uint32_t i = 0; i <= LaneMemory::kReplayed; ++i) {
    const uint64_t number = pair.sender.Capture(kLongest, 7, 0).number;
    pair.receiver.Capture(kLongest, 7, 0);
    const bool there = pair.receiver.Accept(true) != nullptr;
    EXPECT_EQ(there, i < LaneMemory::kReplayed);
    EXPECT_EQ(pair.sender.Answer(number) != nullptr, there);
  }
  EXPECT_TRUE(pair.sender.closed() && pair.receiver.closed());
  pair.sender.Break();
  EXPECT_TRUE(Reached(pair.memory->replayed.back().done.load(), 1));
  EXPECT_TRUE(Reached(pair.memory->replayed.back().ready.load(), 1));
}

TEST(Lane, BreakingEndsEveryWait) {
  Pair pair;
  for (uint64_t i = 1; i <= LaneMemory::kSlots + 3; ++i) {
    pair.receiver.Arrive(kLongest, 0, 0, Verdict::kPush);
    pair.sender.Arrive(kLongest, 0, 0, Verdict::kPush);
    if (i <= 3) pair.memory->Of(i).done = FlagValue(i);
  }
  pair.sender.Break();
  EXPECT_TRUE(pair.receiver.broken());
  EXPECT_TRUE(pair.receiver.HasRoom());
  for (uint64_t i = 4; i <= LaneMemory::kSlots + 3; ++i) {
    EXPECT_TRUE(Reached(pair.memory->Of(i).ready, FlagValue(i)));
    EXPECT_TRUE(Reached(pair.memory->Of(i).done, FlagValue(i)));
  }
  // One that was told of just then.
  const uint64_t next = LaneMemory::kSlots + 4;
  EXPECT_TRUE(Reached(pair.memory->Of(next).done, FlagValue(next)));
}

TEST(Lane, ClosesBehindWhatThePeerGaveToNccl) {
  Pair pair;
  pair.receiver.Arrive(kLongest, 0, 0, Verdict::kNative);
  EXPECT_TRUE(pair.sender.Close());
  EXPECT_FALSE(pair.sender.closed()) << "the peer has told of a message already";
  EXPECT_TRUE(pair.sender.Close());
  EXPECT_TRUE(pair.sender.closed());
  EXPECT_FALSE(pair.receiver.closed()) << "it does not know yet";
  EXPECT_EQ(pair.receiver.Arrive(kLongest, 0, 0, Verdict::kPush).verdict, Verdict::kClosed);
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
  pair.receiver.Arrive(kLongest, 0, 0, Verdict::kPush);
  EXPECT_FALSE(pair.sender.Close());
  EXPECT_FALSE(pair.sender.closed());
}

TEST(Lane, FlagsCountOnBeyondTheirWidth) {
  EXPECT_TRUE(Reached(FlagValue((uint64_t{1} << 32) + 5), FlagValue((uint64_t{1} << 32) - 5)));
  EXPECT_FALSE(Reached(FlagValue((uint64_t{1} << 32) - 5), FlagValue((uint64_t{1} << 32) + 5)));
}

// Both at once, many times: always one is first, and both know the same.
TEST(Lane, TwoThatComeAtOnceAgree) {
  constexpr uint64_t kMessages = 20'000;
  Pair pair;
  std::array<std::vector<Arrived>, 2> seen;
  const auto run = [&](LaneEnd& end, Verdict verdict) {
    std::vector<Arrived>& mine = seen[static_cast<size_t>(end.role())];
    mine.reserve(kMessages);
    for (uint64_t i = 1; i <= kMessages; ++i) {
      while (!end.HasRoom()) std::this_thread::yield();
      mine.push_back(end.Arrive(i, i, 2 * i, verdict));
      if (!mine.back().first) pair.memory->Of(i).done = FlagValue(i);
    }
  };
  std::thread other([&] { run(pair.sender, Verdict::kPull); });
  run(pair.receiver, Verdict::kPush);
  other.join();
  for (uint64_t i = 0; i < kMessages; ++i) {
    const Arrived& sender = seen[0][i];
    const Arrived& receiver = seen[1][i];
    ASSERT_NE(sender.first, receiver.first) << i;
    ASSERT_EQ(sender.verdict, receiver.verdict) << i;
    ASSERT_EQ(sender.verdict, sender.first ? Verdict::kPull : Verdict::kPush);
    const Arrived& second = sender.first ? receiver : sender;
    ASSERT_EQ(second.theirs.bytes, i + 1);
    ASSERT_EQ(second.theirs.offset, 2 * (i + 1));
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
