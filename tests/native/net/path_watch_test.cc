// SPDX-License-Identifier: Apache-2.0
#include "net/path_watch.h"

#include <gtest/gtest.h>

#include "net/clock.h"

namespace nccltune::net {
namespace {

constexpr int kLimitMs = 8'000;
constexpr int64_t kLimitNs = kLimitMs * kNsPerMs;

PathFacts Facts(uint32_t unacknowledged, uint32_t probes, int64_t last_answer_ago_ns) {
  PathFacts facts;
  facts.unacknowledged = unacknowledged;
  facts.probes = probes;
  facts.last_answer_ago_ns = last_answer_ago_ns;
  return facts;
}

TEST(PathWatch, IsDueOnlyAfterSomethingWasWritten) {
  PathWatch watch(kLimitMs);
  EXPECT_FALSE(watch.Due(kNsPerSecond));
  EXPECT_EQ(watch.NextNs(), INT64_MAX);
  watch.Wrote();
  EXPECT_TRUE(watch.Due(kNsPerSecond));
  EXPECT_FALSE(watch.IsDead(kNsPerSecond, Facts(1, 0, 0)));
  EXPECT_FALSE(watch.Due(kNsPerSecond));
  EXPECT_EQ(watch.NextNs(), kNsPerSecond + kLimitNs / 8);
  EXPECT_TRUE(watch.Due(kNsPerSecond + kLimitNs / 8));
}

TEST(PathWatch, RestsWhenAllIsAnswered) {
  PathWatch watch(kLimitMs);
  watch.Wrote();
  EXPECT_FALSE(watch.IsDead(kNsPerSecond, Facts(0, 0, 0)));
  EXPECT_EQ(watch.NextNs(), INT64_MAX);
  // Data behind a closed window needs a check: the next probe may not be answered.
  watch.Wrote();
  PathFacts facts = Facts(0, 0, 0);
  facts.unsent = 1;
  EXPECT_FALSE(watch.IsDead(kNsPerSecond, facts));
  EXPECT_NE(watch.NextNs(), INT64_MAX);
}

TEST(PathWatch, IsDeadAfterTheLimitWithoutAnyAnswer) {
  for (const bool probes : {false, true}) {
    PathWatch watch(kLimitMs);
    watch.Wrote();
    const auto at = [&](int64_t ns) {
      // The last acknowledgement was at time 0.
      return watch.IsDead(ns, Facts(probes ? 0 : 3, probes ? 1 : 0, ns));
    };
    // The data at the first check may have been sent just before it.
    EXPECT_FALSE(at(kLimitNs * 2));
    EXPECT_FALSE(at(kLimitNs * 3 - 1));
    EXPECT_TRUE(at(kLimitNs * 3));
  }
}

TEST(PathWatch, AnyAnswerStartsTheTimeAnew) {
  PathWatch watch(kLimitMs);
  watch.Wrote();
  int64_t now = 0;
  // The window stays closed for a long time, and each probe is answered after a while.
  for (int i = 0; i < 100; ++i) {
    now += kLimitNs / 2;
    EXPECT_FALSE(watch.IsDead(now, Facts(0, 1, kLimitNs / 4)));
  }
  EXPECT_FALSE(watch.IsDead(now + kLimitNs / 2, Facts(0, 1, kLimitNs * 3 / 4)));
  EXPECT_TRUE(watch.IsDead(now + kLimitNs, Facts(0, 1, kLimitNs * 5 / 4)));
}

TEST(PathWatch, AnotherSocketStartsTheTimeAnew) {
  PathWatch watch(kLimitMs);
  watch.Wrote();
  EXPECT_FALSE(watch.IsDead(0, Facts(1, 0, 0)));
  watch.Reset();
  EXPECT_EQ(watch.NextNs(), INT64_MAX);
  watch.Wrote();
  EXPECT_FALSE(watch.IsDead(kLimitNs, Facts(1, 0, kLimitNs)));
}

}  // namespace
}  // namespace nccltune::net
