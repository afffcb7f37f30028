// SPDX-License-Identifier: Apache-2.0
// NCCL's cost table: predicted time in microseconds of each algorithm with each protocol.
#ifndef NCCLTUNE_HOST_COST_TABLE_H_
#define NCCLTUNE_HOST_COST_TABLE_H_

#include <array>
#include <cstddef>

#include "host/names.h"
#include "host/nccl_rules.h"

namespace nccltune::host {

struct CostTable {
  int algorithms = abi::kNumAlgorithms;  // rows in use
  std::array<std::array<float, abi::kNumProtocols>, abi::kNumAlgorithms> cost;

  // Every entry marked as not usable.
  explicit CostTable(int rows = abi::kNumAlgorithms);

  float at(Combination c) const {
    return cost[static_cast<size_t>(c.algorithm)][static_cast<size_t>(c.protocol)];
  }
  float& at(Combination c) {
    return cost[static_cast<size_t>(c.algorithm)][static_cast<size_t>(c.protocol)];
  }
};

// Calls f(Combination) for every entry, in the order of the numbers.
template <typename F>
void ForEachEntry(const CostTable& table, F f) {
  for (int a = 0; a < table.algorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) f(Combination{a, p});
  }
}

// A communicator as far as it matters to which combinations NCCL supports.
struct Platform {
  int nodes = 1;
  int ranks = 2;
  int min_ranks_per_node = 2;
  int max_ranks_per_node = 2;
  bool nvls = true;
  bool collnet = true;
  bool ll128 = true;
};

// The cost given to every entry of a nominal table. Its value says nothing; that an entry still
// holds it says that the plugin left the entry alone.
inline constexpr float kNominalCostUs = 1000.0f;

// The combinations that NCCL can offer for the collective on such a platform, all at the nominal
// cost; PAT where there is one rank a node, as NCCL_PAT_ENABLE's default has it.
CostTable NominalTable(const NcclRules& rules, int collective, const Platform& platform);

// The combination that NCCL picks from what it offered and what the plugin made of it; unknown if
// no entry can be picked. Not for Selection::kPluginDirect's own choice: there the table is NCCL's.
Combination Pick(const NcclRules& rules, const CostTable& offered, const CostTable& answered);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_COST_TABLE_H_
