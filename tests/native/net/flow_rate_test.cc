// SPDX-License-Identifier: Apache-2.0
#include "net/flow_rate.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kGranule = 8 << 10;

// Simulates a flow with `depth` chunks in flight that delivers one every `interval_ns`.
void Deliver(FlowRate& flow, int64_t* now_ns, int chunks, uint64_t bytes, int64_t interval_ns,
             size_t depth = 2, bool app_limited = false, bool path_waits = true) {
  std::deque<FlowRate::Mark> under_way;
  uint64_t undelivered = 0;
  for (int i = 0; i < chunks; ++i) {
    while (under_way.size() < depth) {
      under_way.push_back(flow.Sent(*now_ns, undelivered, app_limited));
      undelivered += bytes;
    }
    *now_ns += interval_ns;
    undelivered -= bytes;
    flow.Acknowledged(*now_ns, bytes, under_way.front(), path_waits ? *now_ns : 0);
    under_way.pop_front();
  }
}

TEST(FlowRate, KnowsNothingBeforeTheFirstAcknowledgement) {
  FlowRate flow;
  EXPECT_EQ(flow.rate(), 0);
  EXPECT_EQ(flow.round_trip_ns(), 0);
  EXPECT_EQ(flow.Cap(0), 2 * kFirstChunk) << "room for two: one is read, one is on its way";
  EXPECT_EQ(flow.ExpectedBy(flow.Sent(5, 0, false), kFullChunk), INT64_MAX);
}

TEST(FlowRate, FollowsTheAcknowledgementsAndAFlowThatBecomesSlow) {
  FlowRate flow;
  int64_t now = kMs;
  Deliver(flow, &now, 50, 100'000, kMs);
  EXPECT_NEAR(flow.rate(), 1e8, 1e6) << "100 kB each ms";
  EXPECT_GE(flow.round_trip_ns(), kMs);
  EXPECT_LE(flow.round_trip_ns(), 2 * kMs);
  Deliver(flow, &now, 12, 100'000, 10 * kMs);
  EXPECT_LT(flow.rate(), 2e7);
  Deliver(flow, &now, 20, 100'000, kMs);
  EXPECT_GT(flow.rate(), 9e7);
}

TEST(FlowRate, IsNotLowerForAFlowThatHadNothingToDo) {
  FlowRate flow;
  int64_t now = kMs;
  Deliver(flow, &now, 50, 100'000, kMs);
  const double before = flow.rate();
  // One chunk at a time, so that its time is pure latency.
  Deliver(flow, &now, 20, 10'000, 2 * kMs, 1, true);
  EXPECT_EQ(flow.rate(), before);
  Deliver(flow, &now, 20, 1'000'000, kMs, 1, true);
  EXPECT_GT(flow.rate(), 5 * before) << "at least so fast it is";
}

// Two chunks wait for a thread of the peer, which then reads and acknowledges both. If the rate
// followed that, the cap would shrink and lower the rate further.
TEST(FlowRate, IsNotLowerWhereThreadsAreLate) {
  FlowRate flow;
  int64_t now = kMs;
  Deliver(flow, &now, 50, 1'000'000, kMs);
  const double before = flow.rate();
  Deliver(flow, &now, 50, 10'000, 2 * kMs, 2, false, false);
  EXPECT_GT(flow.rate(), before / 3) << "what came before it was seen";
  EXPECT_EQ(flow.Allowed(8 * before), 8 * before) << "nothing shows that it could not carry it";
  Deliver(flow, &now, 20, 100'000, 10 * kMs);
  EXPECT_LT(flow.rate(), 2e7) << "the path is what is slow";
  EXPECT_EQ(flow.Allowed(before), flow.rate());
}

TEST(FlowRate, TheTimeThatAFlowIsIdleDoesNotCount) {
  FlowRate flow;
  int64_t now = kMs;
  for (int i = 0; i < 20; ++i) {
    const FlowRate::Mark mark = flow.Sent(now, 0, false);
    now += kMs;
    flow.Acknowledged(now, 100'000, mark, now);
    now += 1000 * kMs;
  }
  EXPECT_NEAR(flow.rate(), 1e8, 1e6);
}

TEST(FlowRate, TheRoundTripIsTheShortestOfLate) {
  FlowRate flow;
  int64_t now = kMs;
  const auto trip = [&](int64_t ns) {
    const FlowRate::Mark mark = flow.Sent(now, 0, false);
    now += ns;
    flow.Acknowledged(now, 1000, mark, now);
  };
  trip(3 * kMs);
  EXPECT_EQ(flow.round_trip_ns(), 3 * kMs);
  trip(kMs);
  EXPECT_EQ(flow.round_trip_ns(), kMs);
  trip(5 * kMs);
  EXPECT_EQ(flow.round_trip_ns(), kMs);
  now += 2000 * kMs;
  trip(5 * kMs);
  EXPECT_EQ(flow.round_trip_ns(), 5 * kMs) << "the path has changed";
}

TEST(FlowRate, TheCapCoversThePathAndEndsSomewhere) {
  FlowRate fast;
  int64_t now = kMs;
  Deliver(fast, &now, 50, 1'000'000, kMs);
  EXPECT_GE(fast.Cap(fast.rate()),
            static_cast<uint64_t>(fast.rate() * 1e-9 * static_cast<double>(fast.round_trip_ns())))
      << "what is under way for one round trip";
  EXPECT_LE(fast.Cap(fast.rate()), 64U << 20);
  FlowRate endless;
  now = kMs;
  Deliver(endless, &now, 20, 1 << 30, kMs);
  EXPECT_EQ(endless.Cap(0), 64U << 20);
  FlowRate slow;
  now = kMs;
  Deliver(slow, &now, 20, 100, 10 * kMs);
  EXPECT_EQ(slow.Cap(fast.rate()), 2 * kSmallestChunk);
}

TEST(FlowRate, ASlowFlowIsGivenLessThanAFastOne) {
  FlowRate fast;
  FlowRate slow;
  int64_t now = kMs;
  Deliver(fast, &now, 50, kFullChunk, kMs);
  now = kMs;
  Deliver(slow, &now, 50, kFullChunk / 10, kMs);
  EXPECT_GT(fast.Cap(fast.rate()), 5 * slow.Cap(fast.rate()));
}

TEST(FlowRate, MoreBeforeAFrameIsMoreTimeForIt) {
  FlowRate flow;
  int64_t now = kMs;
  Deliver(flow, &now, 50, 100'000, kMs);
  const FlowRate::Mark mark = flow.Sent(now, 0, false);
  const int64_t one = flow.ExpectedBy(mark, 100'000) - now;
  const int64_t ten = flow.ExpectedBy(mark, 1'000'000) - now;
  EXPECT_NEAR(static_cast<double>(ten - one), 9.0 * kMs, 0.2 * kMs);
  EXPECT_GE(one, flow.round_trip_ns());
}

TEST(FlowRate, ExpectedByDoesNotOverflowForAFlowThatStandsStill) {
  FlowRate flow;
  const FlowRate::Mark mark = flow.Sent(0, 0, false);
  flow.Acknowledged(3600 * 1000 * kMs, 1, mark, 3600 * 1000 * kMs);
  ASSERT_GT(flow.rate(), 0);
  const FlowRate::Mark next = flow.Sent(3600 * 1000 * kMs, 0, false);
  const int64_t expected = flow.ExpectedBy(next, uint64_t{1} << 40);
  EXPECT_GT(expected, next.sent_ns);
  EXPECT_LT(expected, next.sent_ns + 2 * 3600 * 1000 * kMs);
}

TEST(ChunkFor, IsWhatTakesTheSameTimeOnEveryFlow) {
  const uint64_t much = 1 << 30;
  const Rates rates = {.together = 4e9, .fastest = 1e9};
  EXPECT_EQ(ChunkFor(0, {}, much, kGranule), kFirstChunk) << "nothing is known";
  EXPECT_EQ(ChunkFor(8e9, {9e9, 8e9}, much, kGranule), kFullChunk) << "never more";
  const uint64_t of_fast = ChunkFor(1e9, rates, much, kGranule);
  EXPECT_NEAR(static_cast<double>(ChunkFor(5e8, rates, much, kGranule)),
              static_cast<double>(of_fast) / 2, kGranule);
  EXPECT_EQ(ChunkFor(1, rates, much, kGranule), kGranule) << "at least one granule";
}

TEST(ChunkFor, TheLastBytesAreSharedOut) {
  const uint64_t pending = 1280 << 10;
  EXPECT_EQ(ChunkFor(2e9, {8e9, 2e9}, pending, kGranule), pending / 4);
  const Rates many = {.together = 16e9, .fastest = 2e9};
  EXPECT_EQ(ChunkFor(2e9, many, 512 << 10, kGranule), 256U << 10) << "but not to crumbs";
  EXPECT_EQ(ChunkFor(2e9, many, 16 << 10, kGranule), 16U << 10) << "never more than there is";
}

TEST(ChunkFor, IsAlwaysOnTheGridAndNeverNothing) {
  for (const uint64_t granule : {uint64_t{8 << 10}, uint64_t{64 << 10}, uint64_t{1 << 20}}) {
    for (const double rate : {0.0, 1.0, 3e5, 1e9, 1e12}) {
      for (const uint64_t pending : {1U, 4097U, 8192U, 300'000U, 1U << 30}) {
        const uint64_t bytes = ChunkFor(rate, {2e9, 1e9}, pending, granule);
        EXPECT_EQ(bytes % granule, 0U);
        EXPECT_GE(bytes, granule);
        EXPECT_LE(bytes, std::max(granule, kFullChunk));
      }
    }
  }
}

// If each flow takes chunks of ChunkFor's size, the fast flow carries its share.
TEST(ChunkFor, AChunkTakesTheSameTimeOnUnequalFlows) {
  struct Case {
    double fastest;
    double seconds;
  };
  for (const auto& [fastest, seconds] :
       {Case{2e9, 250e-6}, Case{262.144e6, 1e-3}, Case{1e7, 4e-3}}) {
    for (const double share : {1.0, 0.8, 0.3, 0.1}) {
      const double rate = share * fastest;
      const Rates rates = {.together = 2.2 * fastest, .fastest = fastest};
      const auto bytes = static_cast<double>(ChunkFor(rate, rates, 1 << 30, kGranule));
      EXPECT_NEAR(bytes, rate * seconds, kGranule) << fastest << " " << share;
    }
  }
}

TEST(ChunkFor, FlowsThatAreAllSlowKeepChunksThatAreWorthTheirCalls) {
  // Sixty-four flows of one connection on a few CPUs.
  EXPECT_EQ(ChunkFor(16.384e6, {64 * 16.384e6, 16.384e6}, 1 << 30, kGranule), 64U << 10);
  FlowRate flow;
  int64_t now = kMs;
  Deliver(flow, &now, 50, 16'384, kMs);
  EXPECT_GE(flow.Cap(flow.rate()), 2 * (56U << 10));
  EXPECT_LE(flow.Cap(10 * flow.rate()), 64U << 10) << "beside a fast one it is given less";
}

}  // namespace
}  // namespace nccltune::net
