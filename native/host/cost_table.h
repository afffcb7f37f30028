// SPDX-License-Identifier: Apache-2.0
// NCCL's cost table: the predicted time in microseconds of each algorithm with each protocol.
#pragma once

#include <array>
#include <cstddef>

#include "host/nccl_rules.h"

namespace nccltune::host {

struct CostTable {
  int algorithms = abi::kNumAlgorithms;  // rows in use
  std::array<std::array<float, abi::kNumProtocols>, abi::kNumAlgorithms> cost;

  // Makes every entry not usable (kIgnore).
  explicit CostTable(int rows = abi::kNumAlgorithms);

  float at(Combination c) const {
    return cost[static_cast<size_t>(c.algorithm)][static_cast<size_t>(c.protocol)];
  }
  float& at(Combination c) {
    return cost[static_cast<size_t>(c.algorithm)][static_cast<size_t>(c.protocol)];
  }
};

// Calls f(Combination) for every entry, in the order of algorithm and protocol numbers.
template <typename F>
void ForEachEntry(const CostTable& table, F f) {
  for (int a = 0; a < table.algorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) f(Combination{a, p});
  }
}

// The properties of a communicator that decide which combinations NCCL supports.
struct Platform {
  int nodes = 1;
  int ranks = 2;
  int min_ranks_per_node = 2;
  int max_ranks_per_node = 2;
  bool nvls = true;
  bool collnet = true;
  bool ll128 = true;
};

// A nominal table is used if NCCL's predictions are unknown. Every usable entry of a nominal table
// has this cost, which has no meaning. If an entry still has this cost after the call, the plugin
// did not change the entry.
inline constexpr float kNominalCostUs = 1000.0f;

// Returns a table with the nominal cost for every combination that NCCL can offer for the
// collective on this platform. PAT is offered only with one rank per node, which is the default of
// NCCL_PAT_ENABLE.
CostTable NominalTable(const NcclRules& rules, int collective, const Platform& platform);

// Returns the combination that NCCL picks from the table that NCCL offered (`offered`) and the
// plugin changed (`answered`); unknown if no entry can be picked. With Selection::kPluginDirect the
// plugin cannot change the table, so the result is NCCL's own pick, not the combination that the
// plugin names.
Combination Pick(const NcclRules& rules, const CostTable& offered, const CostTable& answered);

}  // namespace nccltune::host
