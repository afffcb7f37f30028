// SPDX-License-Identifier: Apache-2.0
#include "net/slow_flow.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "net/clock.h"

namespace nccltune::net {
namespace {

constexpr uint64_t kMiB = 1 << 20;

FlowWork Busy(uint64_t mib) { return {.bytes = mib * kMiB, .samples = 50, .path_samples = 48}; }

// Feeds the watch with windows; `Window` takes the work of each flow.
class Watched {
 public:
  explicit Watched(size_t flows) : watch_(flows), totals_(flows) {
    now_ns_ = 1000 * kNsPerSecond;
    EXPECT_TRUE(watch_.Due(now_ns_));
    EXPECT_TRUE(watch_.Judge(now_ns_, totals_).empty());
  }

  std::vector<SlowFlow> Window(const std::vector<FlowWork>& work, int64_t ns = kSlowWindowNs) {
    for (size_t i = 0; i < work.size(); ++i) {
      totals_[i].bytes += work[i].bytes;
      totals_[i].samples += work[i].samples;
      totals_[i].path_samples += work[i].path_samples;
    }
    EXPECT_FALSE(watch_.Due(now_ns_ + kSlowWindowNs - 1));
    now_ns_ += ns;
    EXPECT_TRUE(watch_.Due(now_ns_));
    return watch_.Judge(now_ns_, totals_);
  }

 private:
  SlowFlowWatch watch_;
  std::vector<FlowWork> totals_;
  int64_t now_ns_;
};

std::vector<FlowWork> OneSlow() { return {Busy(1000), Busy(1100), Busy(90), Busy(1000)}; }

TEST(SlowFlowWatch, ReportsAFlowWithATenthAfterTwoWindows) {
  Watched watched(4);
  EXPECT_TRUE(watched.Window(OneSlow()).empty()) << "five seconds may be somebody's burst";
  const std::vector<SlowFlow> reported = watched.Window(OneSlow());
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].which, 2U);
  EXPECT_EQ(reported[0].for_ns, 2 * kSlowWindowNs);
  EXPECT_NEAR(reported[0].bytes_per_s, 18.0 * kMiB, 1);
  EXPECT_NEAR(reported[0].others_bytes_per_s, 200.0 * kMiB, 1);
  EXPECT_NEAR(reported[0].share, 90.0 / 3190, 1e-9);
}

TEST(SlowFlowWatch, ReportsItOnceInTenMinutes) {
  Watched watched(4);
  int reported = 0;
  for (int i = 0; i < 2 + 120; ++i) reported += static_cast<int>(watched.Window(OneSlow()).size());
  EXPECT_EQ(reported, 2);
}

TEST(SlowFlowWatch, AFlowThatIsWellForAWhileBeginsAnew) {
  Watched watched(4);
  const std::vector<FlowWork> well(4, Busy(1000));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(watched.Window(OneSlow()).empty());
    EXPECT_TRUE(watched.Window(well).empty());
  }
}

TEST(SlowFlowWatch, AStalledFlowIsSlow) {
  Watched watched(2);
  watched.Window({Busy(0), Busy(500)});
  const std::vector<SlowFlow> reported = watched.Window({Busy(0), Busy(500)});
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].which, 0U);
  EXPECT_EQ(reported[0].share, 0);
}

TEST(SlowFlowWatch, AFlowThatHasNothingToDoIsNotSlow) {
  Watched watched(4);
  std::vector<FlowWork> work = OneSlow();
  // It was fast but the others left it little, or a thread was late.
  work[2].path_samples = 29;
  EXPECT_TRUE(watched.Window(work).empty());
  EXPECT_TRUE(watched.Window(work).empty());
}

TEST(SlowFlowWatch, AThirdIsNotSlow) {
  Watched watched(4);
  const std::vector<FlowWork> work = {Busy(900), Busy(900), Busy(300), Busy(900)};
  EXPECT_TRUE(watched.Window(work).empty());
  EXPECT_TRUE(watched.Window(work).empty());
}

TEST(SlowFlowWatch, ALittleLoadShowsNothing) {
  Watched watched(4);
  const std::vector<FlowWork> few = {Busy(15), Busy(15), Busy(0), Busy(15)};
  EXPECT_TRUE(watched.Window(few).empty());
  EXPECT_TRUE(watched.Window(few).empty());
  std::vector<FlowWork> seldom = OneSlow();
  for (FlowWork& work : seldom) work.samples = work.path_samples = 9;
  EXPECT_TRUE(watched.Window(seldom).empty());
  EXPECT_TRUE(watched.Window(seldom).empty());
}

TEST(SlowFlowWatch, APauseOfTheConnectionShowsNothing) {
  Watched watched(4);
  EXPECT_TRUE(watched.Window(OneSlow()).empty());
  EXPECT_TRUE(watched.Window(OneSlow(), 2 * kSlowWindowNs).empty());
  EXPECT_TRUE(watched.Window(OneSlow()).empty());
  EXPECT_EQ(watched.Window(OneSlow()).size(), 1U);
}

TEST(SlowFlowWatch, OneFlowHasNoSisters) {
  Watched watched(1);
  EXPECT_TRUE(watched.Window({Busy(0)}).empty());
  EXPECT_TRUE(watched.Window({Busy(0)}).empty());
}

TEST(SlowFlowWatch, HalfOfTheFlowsMayBeSlow) {
  const std::vector<FlowWork> work = {Busy(10), Busy(20), Busy(900), Busy(900), Busy(900)};
  EXPECT_TRUE(IsSlow(work, 0));
  EXPECT_TRUE(IsSlow(work, 1));
  EXPECT_FALSE(IsSlow(work, 2));
  EXPECT_EQ(MedianOfOthers(work, 0), 900 * kMiB);
}

TEST(WarningBudget, IsOneAMinuteAndCountsTheOthers) {
  WarningBudget budget;
  const int64_t now = 5 * kNsPerSecond;
  EXPECT_EQ(budget.Take(now), std::optional<uint64_t>(0));
  EXPECT_EQ(budget.Take(now), std::nullopt);
  EXPECT_EQ(budget.Take(now + 59 * kNsPerSecond), std::nullopt);
  EXPECT_EQ(budget.Take(now + 60 * kNsPerSecond), std::optional<uint64_t>(2));
  EXPECT_EQ(budget.Take(now + 120 * kNsPerSecond), std::optional<uint64_t>(0));
}

}  // namespace
}  // namespace nccltune::net
