// SPDX-License-Identifier: Apache-2.0
#include "bench/player.h"
#include "bench/random.h"
#include "common/json.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

BenchRequest MakeRequest(int sizes, int forced, int default_repeats, uint64_t seed) {
  BenchRequest request;
  request.kind = BenchRequest::Kind::kMeasure;
  request.default_repeats = default_repeats;
  request.step.seed = seed;
  for (int i = 0; i < sizes; ++i) request.bytes.push_back(size_t{1024} << i);
  request.choices.emplace_back();
  for (int i = 0; i < forced; ++i) {
    request.choices.push_back({Choice::Kind::kForced, {abi::kRing, abi::kLl}, i + 1, 0});
  }
  return request;
}

using Place = std::tuple<size_t, std::string, int>;  // size, choice, repeat

std::vector<Place> Places(const std::vector<Step>& steps) {
  std::vector<Place> places;
  for (const Step& step : steps) {
    places.emplace_back(step.bytes, json::Write(ToJson(step.choice)), step.repeat);
  }
  return places;
}

TEST(Schedule, ARoundHasEachChoiceOnceAndTheDefaultRepeated) {
  for (int repeats = 1; repeats <= 3; ++repeats) {
    const BenchRequest request = MakeRequest(5, 4, repeats, 42);
    const std::vector<Step> steps = StepsOfRound(request, 3);
    std::vector<Place> places = Places(steps);
    EXPECT_EQ(places.size(), static_cast<size_t>(5 * (4 + repeats)));
    const std::set<Place> different(places.begin(), places.end());
    EXPECT_EQ(different.size(), places.size());
    for (const size_t bytes : request.bytes) {
      for (int repeat = 0; repeat < repeats; ++repeat) {
        EXPECT_TRUE(different.contains({bytes, R"("default")", repeat}));
      }
    }
    for (const Step& step : steps) EXPECT_EQ(step.round, 3);
  }
}

TEST(Schedule, RepeatsCountInTheOrderThatTheyAreRun) {
  std::map<size_t, int> next;
  for (const Step& step : StepsOfRound(MakeRequest(4, 3, 5, 1), 0)) {
    if (step.choice.kind == Choice::Kind::kDefault) {
      EXPECT_EQ(step.repeat, next[step.bytes]++);
    } else {
      EXPECT_EQ(step.repeat, 0);
    }
  }
}

TEST(Schedule, TheOrderIsDecidedBySeedAndRound) {
  const auto order = [](uint64_t seed, int round) {
    return Places(StepsOfRound(MakeRequest(6, 5, 2, seed), round));
  };
  EXPECT_EQ(order(7, 2), order(7, 2));
  EXPECT_NE(order(7, 2), order(7, 3));
  EXPECT_NE(order(7, 2), order(8, 2));
  // Another seed gives another order in round 0 too.
  EXPECT_NE(order(7, 0), order(8, 0));
}

// Every step is equally likely at every position. A chi-square test: a correct shuffle passes with
// these fixed seeds, and a wrong one (for example, swaps with any position) fails.
TEST(Schedule, NoPlaceIsPreferred) {
  constexpr int kSteps = 4;
  constexpr int kRounds = 24'000;
  const BenchRequest request = MakeRequest(1, kSteps - 1, 1, 5);
  std::map<std::string, int> orders;
  for (int round = 0; round < kRounds; ++round) {
    std::string order;
    for (const Step& step : StepsOfRound(request, round)) {
      order += static_cast<char>('a' + std::max(step.choice.channels, 0));
    }
    ++orders[order];
  }
  ASSERT_EQ(orders.size(), 24U);
  double chi_square = 0;
  for (const auto& [order, count] : orders) {
    chi_square += (count - kRounds / 24.0) * (count - kRounds / 24.0) / (kRounds / 24.0);
  }
  EXPECT_LT(chi_square, 49.7);  // 23 degrees of freedom, p = 0.001
}

TEST(Random, BelowIsFair) {
  Random random(3);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < 30'000; ++i) ++counts[random.Below(3)];
  ASSERT_EQ(counts.size(), 3U);
  for (const auto& [number, count] : counts) EXPECT_NEAR(count, 10'000, 400);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.Below(1), 0U);
  EXPECT_LT(Random(9).Below(uint64_t{3} << 62U), uint64_t{3} << 62U);
}

// The order must be the same on every machine, because studies record their seed.
TEST(Random, IsTheSameEverywhere) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317U);
  EXPECT_EQ(random.Next(), 3203168211198807973U);
  EXPECT_EQ(random.Next(), 9817491932198370423U);
  EXPECT_NE(MixSeed(MixSeed(1, uint64_t{2}), uint64_t{3}),
            MixSeed(MixSeed(1, uint64_t{3}), uint64_t{2}));
  EXPECT_NE(MixSeed(MixSeed(1, "ab"), "c"), MixSeed(MixSeed(1, "a"), "bc"));
}

}  // namespace
}  // namespace nccltune::bench
