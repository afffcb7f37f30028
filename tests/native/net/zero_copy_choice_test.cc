// SPDX-License-Identifier: Apache-2.0
#include "net/zero_copy.h"
#include "testing.h"

namespace nccltune::net {
namespace {

using State = ZeroCopyChoice::State;

constexpr size_t kLarge = 128 << 10;

TEST(ZeroCopyChoice, OffIsOff) {
  ZeroCopyChoice choice(ZeroCopyMode::kOff);
  EXPECT_FALSE(choice.Wants(kLarge, 0));
  choice.NewSocket();
  EXPECT_EQ(choice.state(), State::kOff);
}

TEST(ZeroCopyChoice, OneSendIsTriedUntilTheKernelReportsIt) {
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  EXPECT_FALSE(choice.Wants(kLeastUncopied - 1, 0));
  EXPECT_TRUE(choice.Wants(kLeastUncopied, 0));
  EXPECT_FALSE(choice.Wants(kLarge, 1));
  choice.Reported(false);
  EXPECT_EQ(choice.state(), State::kKept);
  EXPECT_TRUE(choice.Wants(kLarge, 1000));
  EXPECT_FALSE(choice.Wants(kLeastUncopied - 1, 0));
}

TEST(ZeroCopyChoice, ACopyEndsItForGood) {
  for (const bool kept_before : {false, true}) {
    ZeroCopyChoice choice(ZeroCopyMode::kAuto);
    if (kept_before) choice.Reported(false);
    choice.Reported(true);
    EXPECT_EQ(choice.state(), State::kDropped);
    choice.Reported(false);
    choice.NewSocket();
    EXPECT_EQ(choice.state(), State::kDropped);
    EXPECT_FALSE(choice.Wants(kLarge, 0));
  }
}

TEST(ZeroCopyChoice, WhatMakesRequestsWaitTwiceInAMinuteEndsItForGood) {
  constexpr int64_t kSecond = 1'000'000'000;
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  choice.Reported(false);
  for (const int64_t second : {0, 60, 200}) {
    choice.HeldTooLong(second * kSecond);
    EXPECT_EQ(choice.state(), State::kKept) << second;
  }
  choice.HeldTooLong(259 * kSecond);
  EXPECT_EQ(choice.state(), State::kDropped);
}

TEST(ZeroCopyChoice, AnotherSocketIsTriedAnew) {
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  choice.Reported(false);
  choice.NewSocket();
  EXPECT_EQ(choice.state(), State::kTrial);
  EXPECT_FALSE(choice.Wants(kLarge, 1));
}

TEST(ZeroCopyChoice, AlwaysMindsNoCopiesButARefusal) {
  ZeroCopyChoice choice(ZeroCopyMode::kAlways);
  EXPECT_TRUE(choice.Wants(kLarge, 1000));
  choice.Reported(true);
  choice.HeldTooLong(1);
  choice.HeldTooLong(2);
  choice.NewSocket();
  EXPECT_EQ(choice.state(), State::kKept);
  EXPECT_FALSE(choice.Wants(kLeastUncopied - 1, 0));
  choice.Refused(EPERM, 3);
  EXPECT_EQ(choice.state(), State::kDropped);
}

TEST(ZeroCopyChoice, RoomForNoMoreIsLearned) {
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  choice.Reported(false);
  choice.Refused(ENOBUFS, 30);
  EXPECT_EQ(choice.state(), State::kKept);
  EXPECT_FALSE(choice.Wants(kLarge, 30));
  EXPECT_TRUE(choice.Wants(kLarge, 29));
  choice.Refused(ENOBUFS, 20);
  EXPECT_FALSE(choice.Wants(kLarge, 20));
  // The limit is exceeded although no send is outstanding: zero-copy is dropped.
  choice.Refused(ENOBUFS, 0);
  EXPECT_EQ(choice.state(), State::kDropped);
}

TEST(ZeroCopyChoice, ARefusalIsNoEndOfTheConnection) {
  for (const int error :
       {ENOBUFS, ENOMEM, EPERM, EACCES, EFAULT, EINVAL, EOPNOTSUPP, ENOPROTOOPT}) {
    EXPECT_TRUE(ZeroCopyChoice::Refuses(error)) << error;
  }
  for (const int error : {EAGAIN, EPIPE, ECONNRESET, ETIMEDOUT, EHOSTUNREACH, EBADF}) {
    EXPECT_FALSE(ZeroCopyChoice::Refuses(error)) << error;
  }
}

using Requests = std::vector<uint64_t>;

Requests Report(ZeroCopyLedger& ledger, uint32_t first, uint32_t last) {
  Requests released;
  ledger.Report(first, last, &released);
  return released;
}

TEST(ZeroCopyLedger, AFrameThatIsStillWrittenIsNotReleased) {
  ZeroCopyLedger ledger;
  ledger.Sent(7, 100);
  EXPECT_EQ(Report(ledger, 0, 0), Requests());
  EXPECT_EQ(ledger.oldest(), 7U);
  ledger.Sent(7, 100);
  EXPECT_EQ(Report(ledger, 1, 1), Requests());
  EXPECT_TRUE(ledger.Finish());
  EXPECT_FALSE(ledger.oldest().has_value());
  // The next frame of the same request is another one.
  ledger.Sent(7, 100);
  EXPECT_FALSE(ledger.Finish());
  EXPECT_EQ(Report(ledger, 2, 2), Requests({7}));
}

TEST(ZeroCopyLedger, ARangeReleasesSeveralAndReportsHowManyBytes) {
  ZeroCopyLedger ledger;
  for (uint64_t request = 1; request <= 4; ++request) {
    ledger.Sent(request, 10 * request);
    EXPECT_FALSE(ledger.Finish());
  }
  Requests released;
  const ZeroCopyLedger::Done done = ledger.Report(1, 2, &released);
  EXPECT_EQ(done.sends, 2U);
  EXPECT_EQ(done.bytes, 50U);
  EXPECT_EQ(released, Requests({2, 3}));
  EXPECT_EQ(ledger.oldest(), 1U);
  EXPECT_EQ(ledger.outstanding(), 2U);
  // The range overlaps known reports on both sides: only new sends count.
  EXPECT_EQ(ledger.Report(0, 3, &released).sends, 2U);
  EXPECT_EQ(released, Requests({2, 3, 1, 4}));
}

TEST(ZeroCopyLedger, ReportsOfWhatIsNotOutstandingChangeNothing) {
  ZeroCopyLedger ledger(5);
  Requests released;
  EXPECT_EQ(ledger.Report(0, UINT32_MAX, &released).sends, 0U);
  ledger.Sent(1, 10);
  ledger.Finish();
  EXPECT_EQ(ledger.Report(0, 4, &released).sends, 0U);
  EXPECT_EQ(ledger.Report(6, 9, &released).sends, 0U);
  EXPECT_EQ(ledger.Report(5, 5, &released).bytes, 10U);
  EXPECT_EQ(ledger.Report(5, 5, &released).sends, 0U);
  EXPECT_EQ(released, Requests({1}));
}

// Compares with a simple model: a count for each frame.
TEST(ZeroCopyLedger, RandomSendsAndReportsInAnyOrder) {
  std::mt19937 random(11);
  const uint32_t start = UINT32_MAX - 500;
  ZeroCopyLedger ledger(start);
  std::map<uint64_t, size_t> left;  // per frame; its number is its request
  std::vector<std::pair<uint32_t, uint64_t>> open;
  uint32_t next = start;
  size_t gone = 0;
  size_t finished_at_once = 0;
  for (uint64_t frame = 0; frame < 2000; ++frame) {
    const uint32_t sends = random() % 4;
    for (uint32_t i = 0; i < sends; ++i) {
      ledger.Sent(frame, 1);
      open.emplace_back(next++, frame);
      ++left[frame];
    }
    if (ledger.Finish()) ++finished_at_once;
    EXPECT_EQ(ledger.outstanding(), open.size());
    while (open.size() > random() % 40) {
      const size_t at = random() % open.size();
      size_t count = 1;
      // Report neighbours in one range.
      while (at + count < open.size() && count < random() % 4 &&
             open[at + count].first == open[at].first + count) {
        ++count;
      }
      Requests expected;
      for (size_t i = at; i < at + count; ++i) {
        if (--left[open[i].second] == 0) expected.push_back(open[i].second);
      }
      ASSERT_EQ(Report(ledger, open[at].first, open[at + count - 1].first), expected);
      gone += expected.size();
      open.erase(open.begin() + static_cast<ptrdiff_t>(at),
                 open.begin() + static_cast<ptrdiff_t>(at + count));
    }
  }
  ASSERT_GT(next, 0U);
  ASSERT_LT(next, start) << "the numbers have wrapped";
  Requests rest;
  ledger.Report(start, next - 1, &rest);
  EXPECT_EQ(gone + rest.size(), left.size());
  EXPECT_EQ(finished_at_once, 2000 - left.size());
  EXPECT_FALSE(ledger.oldest().has_value());
}

}  // namespace
}  // namespace nccltune::net
