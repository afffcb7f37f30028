// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/recording.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace nccltune::bench {
namespace {

Series SeriesOf(const std::map<size_t, std::vector<double>>& times) {
  Series series;
  for (const auto& [bytes, all] : times) {
    for (const double time : all) {
      Timing timing;
      timing.time_us = time;
      series.Add(bytes, timing);
    }
  }
  return series;
}

TEST(Series, ARecordedSizeDrawsItsTimingsUniformly) {
  const Series series = SeriesOf({{1024, {10, 11, 12, 50}}, {2048, {99}}});
  Random random(1);
  std::map<double, int> counts;
  constexpr int kDraws = 8000;
  for (int i = 0; i < kDraws; ++i) ++counts[series.Draw(1024, &random)->time_us];
  ASSERT_EQ(counts.size(), 4U);
  double chi_square = 0;
  for (const auto& [time, count] : counts) {
    chi_square += std::pow(count - kDraws / 4.0, 2) / (kDraws / 4.0);
  }
  EXPECT_LT(chi_square, 16.3);  // 3 degrees of freedom, p = 0.001
}

TEST(Series, BetweenSizesTheMediansAreInterpolatedInLogLog) {
  // The time grows from 10 to 40 us while the size grows by a factor of 16, so it is proportional
  // to the square root of the size.
  const Series series = SeriesOf({{1024, {10}}, {16384, {40}}});
  Random random(1);
  EXPECT_NEAR(series.Draw(4096, &random)->time_us, 20, 1e-9);
  EXPECT_NEAR(series.Draw(2048, &random)->time_us, 10 * std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(Between(1024, 1024, 10, 16384, 40), 10, 1e-12);
  EXPECT_NEAR(Between(16384, 1024, 10, 16384, 40), 40, 1e-12);
}

TEST(Series, BetweenSizesTheNearerOneGivesTheSpread) {
  const Series series = SeriesOf({{1000, {9, 10, 12}}, {100'000, {500, 1000, 3000}}});
  const auto ratios = [&series](size_t bytes, double median) {
    Random random(7);
    std::set<long> all;
    for (int i = 0; i < 200; ++i) {
      all.insert(std::lround(series.Draw(bytes, &random)->time_us / median * 1000));
    }
    return all;
  };
  EXPECT_EQ(ratios(4000, Between(4000, 1000, 10, 100'000, 1000)),
            (std::set<long>{900, 1000, 1200}));
  EXPECT_EQ(ratios(40'000, Between(40'000, 1000, 10, 100'000, 1000)),
            (std::set<long>{500, 1000, 3000}));
}

TEST(Series, NothingIsDrawnOutsideTheRecordedSizes) {
  const Series series = SeriesOf({{1024, {10}}, {4096, {20}}});
  Random random(1);
  EXPECT_FALSE(series.Draw(1023, &random));
  EXPECT_FALSE(series.Draw(4097, &random));
  EXPECT_TRUE(series.Covers(1024));
  EXPECT_TRUE(series.Covers(4096));
  EXPECT_FALSE(Series().Draw(1, &random));
}

TEST(Series, OneSeedGivesOneSequence) {
  const Series series = SeriesOf({{8, {1, 2, 3, 4, 5, 6, 7}}});
  const auto draws = [&series](uint64_t seed) {
    Random random(seed);
    std::vector<double> times;
    for (int i = 0; i < 20; ++i) times.push_back(series.Draw(8, &random)->time_us);
    return times;
  };
  EXPECT_EQ(draws(3), draws(3));
  EXPECT_NE(draws(3), draws(4));
}

TEST(Series, TheMedianIsTheMiddle) {
  EXPECT_EQ(MedianTime({{3, false, {}}, {1, false, {}}, {9, false, {}}}), 3);
  EXPECT_EQ(MedianTime({{3, false, {}}, {1, false, {}}, {9, false, {}}, {5, false, {}}}), 4);
}

}  // namespace
}  // namespace nccltune::bench
