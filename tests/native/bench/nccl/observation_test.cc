// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/observation.h"
#include "bench/tuner_control.h"
#include "host/tuner_host.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

constexpr NcclVersion kVersion = {2, 28, 9};

nccltune_tuner_table TableOf(float tree_ll, float ring_ll, float ring_simple) {
  nccltune_tuner_table table{};
  table.algorithms = 7;
  table.protocols = 3;
  for (auto& row : table.cost_us) {
    for (float& cost : row) cost = -1;
  }
  table.cost_us[abi::kTree][abi::kLl] = tree_ll;
  table.cost_us[abi::kRing][abi::kLl] = ring_ll;
  table.cost_us[abi::kRing][abi::kSimple] = ring_simple;
  return table;
}

nccltune_tuner_decision Forced(int algorithm, int protocol, int outcome) {
  nccltune_tuner_decision decision{};
  decision.source = NCCLTUNE_TUNER_BY_FORCE;
  decision.algorithm = algorithm;
  decision.protocol = protocol;
  decision.outcome = outcome;
  return decision;
}

Step ForcedStep(host::Combination combination) {
  Step step;
  step.choice = {Choice::Kind::kForced, combination, -1, 0};
  return step;
}

TEST(Observation, TheProfilerHasPriority) {
  Observation observation;
  observation.probed = ProbedCall{{abi::kRing, abi::kSimple}, 12};
  observation.decision = Forced(abi::kTree, abi::kLl, NCCLTUNE_TUNER_APPLIED);
  observation.decision->chunk_bytes = 4096;
  const AppliedChoice verdict = Judge(ForcedStep({abi::kTree, abi::kLl}), observation, kVersion);
  EXPECT_EQ(verdict.ran->combination, (host::Combination{abi::kRing, abi::kSimple}));
  EXPECT_EQ(verdict.ran->channels, 12);
  EXPECT_EQ(verdict.ran->chunk_bytes, 4096U);
  EXPECT_FALSE(verdict.applied);
}

TEST(Observation, FallsBackToTheDecisionAndThenToNcclsOwnPick) {
  Observation observation;
  observation.decision = Forced(abi::kRing, abi::kLl, NCCLTUNE_TUNER_APPLIED);
  observation.table = TableOf(5, 5, 9);
  AppliedChoice verdict = Judge(ForcedStep({abi::kRing, abi::kLl}), observation, kVersion);
  EXPECT_EQ(verdict.ran->combination, (host::Combination{abi::kRing, abi::kLl}));
  EXPECT_FALSE(verdict.ran->channels);
  EXPECT_TRUE(verdict.applied);
  // The default is forced too, without a combination. On equal costs 2.28 picks the first.
  observation.decision = Forced(-1, -1, NCCLTUNE_TUNER_APPLIED);
  EXPECT_EQ(Judge(Step(), observation, kVersion).ran->combination,
            (host::Combination{abi::kTree, abi::kLl}));
  EXPECT_EQ(Judge(Step(), observation, {2, 32, 3}).ran->combination,
            (host::Combination{abi::kRing, abi::kLl}));
}

TEST(Observation, AChoiceThatNcclCannotRunIsNotApplied) {
  Observation observation;
  const Step step = ForcedStep({abi::kNvls, abi::kSimple});
  observation.table = TableOf(5, 6, 9);
  observation.decision = Forced(-1, -1, NCCLTUNE_TUNER_UNUSABLE);
  EXPECT_FALSE(Judge(step, observation, kVersion).applied);
  EXPECT_EQ(Judge(step, observation, kVersion).ran->combination,
            (host::Combination{abi::kTree, abi::kLl}));
  observation.decision.reset();
  EXPECT_FALSE(Judge(step, observation, kVersion).applied);
  EXPECT_TRUE(Judge(Step(), observation, kVersion).applied);
  EXPECT_FALSE(Judge(Step(), Observation(), kVersion).ran);
}

TEST(Observation, WithoutADecisionTheProfilerDecidesWhetherItWasApplied) {
  Observation observation;
  observation.probed = ProbedCall{{abi::kRing, abi::kLl}, 4};
  Step step = ForcedStep({abi::kRing, abi::kLl});
  EXPECT_TRUE(Judge(step, observation, kVersion).applied);
  step.choice.channels = 2;
  EXPECT_FALSE(Judge(step, observation, kVersion).applied);
  step.choice.channels = 8;
  EXPECT_TRUE(Judge(step, observation, kVersion).applied);
  EXPECT_FALSE(Judge(ForcedStep({abi::kTree, abi::kLl}), observation, kVersion).applied);
}

// NCCL did not ask the plugin about this call then, but about an earlier one.
TEST(Observation, ADecisionOfAnotherSizeIsDropped) {
  std::string error;
  const auto control = TunerControl::Open(TUNER_PLUGIN, &error);
  ASSERT_NE(control, nullptr) << error;
  host::InitReport report;
  host::Failure failure;
  const auto tuner = host::TunerHost::Start(
      {.tuner = TUNER_PLUGIN,
       .nccl = kVersion,
       .platform = {.nodes = 2, .ranks = 4, .min_ranks_per_node = 2, .max_ranks_per_node = 2},
       .channels = std::nullopt},
      &report, &failure);
  ASSERT_NE(tuner, nullptr) << failure.text;
  Observer observer(*control);
  {
    const Observer::ObservationScope scope(observer, 0);
    tuner->Decide({.collective = abi::kAllReduce, .bytes = 1024});
  }
  EXPECT_TRUE(observer.Collect(Collective::kAllReduce, 1024, 0, 0).decision);
  EXPECT_FALSE(observer.Collect(Collective::kAllReduce, 2048, 0, 0).decision);
}

TEST(Observation, ATableRowHoldsWhatNcclCanRun) {
  const TableRow row = RowOf(TableOf(5.5, -1, 9), kVersion);
  ASSERT_EQ(row.costs.size(), 2U);
  EXPECT_EQ(row.costs[0].first, (host::Combination{abi::kTree, abi::kLl}));
  EXPECT_EQ(row.costs[0].second, 5.5);
  EXPECT_EQ(row.costs[1].first, (host::Combination{abi::kRing, abi::kSimple}));
  EXPECT_EQ(row.predicted, (host::Combination{abi::kTree, abi::kLl}));
}

}  // namespace
}  // namespace nccltune::bench
