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

host::Combination CombinationOf(const Observation& seen, const NcclVersion& version) {
  if (seen.probed && seen.probed->combination.known()) return seen.probed->combination;
  if (seen.decision) {
    const host::Combination decided = {seen.decision->algorithm, seen.decision->protocol};
    if (decided.known()) return decided;
  }
  return seen.table ? PickOf(*seen.table, version) : host::Combination{};
}

bool IsApplied(const Step& step, const Observation& seen) {
  if (step.choice.kind != Choice::Kind::kForced) return true;
  const host::Combination wanted = step.choice.combination;
  const bool probed = seen.probed && seen.probed->combination.known();
  if (probed && wanted.known() && seen.probed->combination != wanted) return false;
  if (seen.decision) {
    return seen.decision->source == NCCLTUNE_TUNER_BY_FORCE &&
           seen.decision->outcome == NCCLTUNE_TUNER_APPLIED;
  }
  // With several ranks in a process the newest decision is now and then not about this call (seen
  // with 2.32.3, in 24 of 770 calls); what ran is known all the same.
  return probed && wanted.known() &&
         (step.choice.channels <= 0 || seen.probed->channels <= step.choice.channels);
}

}  // namespace

Observer::Looking::Looking(Observer& observer, int rank) : observer_(observer) {
  CallProbe::Take(rank);
  const std::lock_guard<std::mutex> lock(observer_.mutex_);
  if (observer_.looking_++ == 0) observer_.control_.Record(true);
}

Observer::Looking::~Looking() {
  const std::lock_guard<std::mutex> lock(observer_.mutex_);
  if (--observer_.looking_ == 0) observer_.control_.Record(false);
}

Observation Observer::Seen(Collective collective, size_t bytes, int rank) const {
  Observation seen;
  seen.probed = CallProbe::Take(rank);
  // The newest is that of another size where the plugin was not asked about this call.
  seen.decision = control_.LastDecision(collective);
  if (seen.decision && seen.decision->bytes != bytes) seen.decision.reset();
  seen.table = control_.LastTable(collective, bytes);
  return seen;
}

Verdict Judge(const Step& step, const Observation& seen, const NcclVersion& version) {
  Ran ran;
  ran.combination = CombinationOf(seen, version);
  if (seen.probed && seen.probed->channels > 0) ran.channels = seen.probed->channels;
  if (seen.decision && seen.decision->chunk_bytes > 0) {
    ran.chunk_bytes = static_cast<size_t>(seen.decision->chunk_bytes);
  }
  Verdict verdict;
  if (!(ran == Ran{})) verdict.ran = ran;
  verdict.applied = IsApplied(step, seen);
  return verdict;
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
