// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/observation.h"

#include <algorithm>

#include "host/cost_table.h"
#include "host/nccl_rules.h"

namespace nccltune::bench {
namespace {

host::CostTable CostsOf(const nccltune_tuner_table& table) {
  host::CostTable costs(std::min<int>(table.algorithms, abi::kNumAlgorithms));
  host::ForEachEntry(costs, [&](host::Combination entry) {
    if (entry.protocol < table.protocols) {
      costs.at(entry) = table.cost_us[entry.algorithm][entry.protocol];
    }
  });
  return costs;
}

host::Combination PickOf(const nccltune_tuner_table& table, const NcclVersion& version) {
  bool exact = false;
  const host::NcclRules* const rules = host::RulesFor(version, &exact);
  if (rules == nullptr) return {};
  const host::CostTable costs = CostsOf(table);
  return host::Pick(*rules, costs, costs);
}

host::Combination CombinationOf(const Observation& observation, const NcclVersion& version) {
  if (observation.probed && observation.probed->combination.known()) {
    return observation.probed->combination;
  }
  if (observation.decision) {
    const host::Combination decided = {observation.decision->algorithm,
                                       observation.decision->protocol};
    if (decided.known()) return decided;
  }
  return observation.table ? PickOf(*observation.table, version) : host::Combination{};
}

bool IsApplied(const Step& step, const Observation& observation) {
  if (step.choice.kind != Choice::Kind::kForced) return true;
  const host::Combination wanted = step.choice.combination;
  const bool probed = observation.probed && observation.probed->combination.known();
  if (probed && wanted.known() && observation.probed->combination != wanted) return false;
  if (observation.decision) {
    return observation.decision->source == NCCLTUNE_TUNER_BY_FORCE &&
           observation.decision->outcome == NCCLTUNE_TUNER_APPLIED;
  }
  // With several ranks in one process, the plugin's newest decision is sometimes about another call
  // (seen with 2.32.3, in 24 of 770 calls). So judge by the profiler's record. Without such a
  // record, the choice counts as not applied.
  return probed && wanted.known() &&
         (step.choice.channels <= 0 || observation.probed->channels <= step.choice.channels);
}

}  // namespace

Observer::ObservationScope::ObservationScope(Observer& observer, int rank) : observer_(observer) {
  CallProbe::Take(rank);
  const std::lock_guard<std::mutex> lock(observer_.mutex_);
  if (observer_.observers_++ == 0) observer_.control_.Record(true);
}

Observer::ObservationScope::~ObservationScope() {
  const std::lock_guard<std::mutex> lock(observer_.mutex_);
  if (--observer_.observers_ == 0) observer_.control_.Record(false);
}

Observation Observer::Collect(Collective collective, size_t bytes, int rank) const {
  Observation observation;
  observation.probed = CallProbe::Take(rank);
  // If the newest decision is about another size, NCCL did not ask the plugin about this call. So
  // drop the decision.
  observation.decision = control_.LastDecision(collective);
  if (observation.decision && observation.decision->bytes != bytes) observation.decision.reset();
  observation.table = control_.LastTable(collective, bytes);
  return observation;
}

AppliedChoice Judge(const Step& step, const Observation& observation, const NcclVersion& version) {
  ExecutedChoice ran;
  ran.combination = CombinationOf(observation, version);
  if (observation.probed && observation.probed->channels > 0) {
    ran.channels = observation.probed->channels;
  }
  if (observation.decision && observation.decision->chunk_bytes > 0) {
    ran.chunk_bytes = static_cast<size_t>(observation.decision->chunk_bytes);
  }
  AppliedChoice verdict;
  if (!(ran == ExecutedChoice{})) verdict.ran = ran;
  verdict.applied = IsApplied(step, observation);
  return verdict;
}

std::optional<TunerInputs> SeenBy(const Observation& observation) {
  if (!observation.decision) return std::nullopt;
  TunerInputs seen;
  seen.pipe_ops = observation.decision->pipe_ops;
  if (observation.decision->registered >= 0) seen.registered = observation.decision->registered > 0;
  return seen;
}

TableRow RowOf(const nccltune_tuner_table& table, const NcclVersion& version) {
  TableRow row;
  const host::CostTable costs = CostsOf(table);
  host::ForEachEntry(costs, [&](host::Combination entry) {
    const float cost = costs.at(entry);
    if (cost >= 0) row.costs.emplace_back(entry, static_cast<double>(cost));
  });
  row.predicted = PickOf(table, version);
  return row;
}

}  // namespace nccltune::bench
