// SPDX-License-Identifier: Apache-2.0
#include "host/cost_table.h"

namespace nccltune::host {
namespace {

// NCCL_MAX_DIRECT_ARITY + 1 and NCCL_MAX_NVLS_ARITY of NCCL's source.
constexpr int kMaxRanksForCollNet = 8;
constexpr int kMaxRanksForNvlsGather = 32;

bool CanCollNet(const NcclRules& rules, int algorithm, int collective, const Platform& platform) {
  if (!platform.collnet || platform.nodes < 2) return false;
  if (algorithm == abi::kCollnetChain) {
    if (collective != abi::kAllReduce) return false;
    return rules.since_minor < 28 || platform.max_ranks_per_node <= kMaxRanksForCollNet;
  }
  return rules.since_minor < 23 || platform.max_ranks_per_node <= kMaxRanksForCollNet;
}

bool CanNvls(const NcclRules& rules, int collective, const Platform& platform) {
  if (!platform.nvls) return false;
  if (platform.nodes > 1 && !platform.collnet) return false;
  if (collective == abi::kAllReduce) return true;
  if (platform.nodes > 1 && !rules.multi_node_nvls_gather) return false;
  return platform.max_ranks_per_node <= kMaxRanksForNvlsGather;
}

// Returns whether NCCL supports the algorithm for the collective, regardless of the protocol.
// Source: src/graph/tuning.cc up to 2.30, src/tuning/ from 2.31.
bool CanRun(const NcclRules& rules, int algorithm, int collective, const Platform& platform) {
  if (collective == abi::kBroadcast || collective == abi::kReduce) return algorithm == abi::kRing;
  switch (algorithm) {
    case abi::kTree:
      return collective == abi::kAllReduce;
    case abi::kRing:
      return true;
    case abi::kCollnetDirect:
    case abi::kCollnetChain:
      return CanCollNet(rules, algorithm, collective, platform);
    case abi::kNvls:
      return CanNvls(rules, collective, platform);
    case abi::kNvlsTree:
      return platform.nvls && platform.nodes > 1 && collective == abi::kAllReduce;
    case abi::kPat:
      return collective != abi::kAllReduce && platform.max_ranks_per_node == 1;
    default:
      return false;
  }
}

}  // namespace

CostTable::CostTable(int rows) : algorithms(rows) {
  for (auto& row : cost) row.fill(abi::kIgnore);
}

CostTable NominalTable(const NcclRules& rules, int collective, const Platform& platform) {
  CostTable table(rules.algorithms);
  ForEachEntry(table, [&](Combination c) {
    const bool all_protocols = c.algorithm == abi::kTree || c.algorithm == abi::kRing;
    if (!all_protocols && c.protocol != abi::kSimple) return;
    if (c.protocol == abi::kLl128 && !platform.ll128) return;
    if (CanRun(rules, c.algorithm, collective, platform)) table.at(c) = kNominalCostUs;
  });
  return table;
}

Combination Pick(const NcclRules& rules, const CostTable& offered, const CostTable& answered) {
  Combination best;
  float least = rules.cost_limit;
  ForEachEntry(offered, [&](Combination c) {
    const float cost = answered.at(c);
    if (rules.selection == Selection::kLeastOfOffered) {
      // NCCL 2.31 walks its list of entries from the highest number down and takes strictly smaller
      // costs. This loop goes up, so an equal cost replaces the earlier cost. Skip entries that
      // NCCL did not offer, because they are not in NCCL's list.
      if (offered.at(c) == abi::kIgnore) return;
      if (best.known() ? cost <= least : cost < least) {
        best = c;
        least = cost;
      }
    } else if (cost >= 0.0f && cost < least) {
      best = c;
      least = cost;
    }
  });
  return best;
}

}  // namespace nccltune::host
