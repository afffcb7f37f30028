// SPDX-License-Identifier: Apache-2.0
#include "tuner/rule_set.h"

#include <cstdint>

namespace nccltune::tuner {
namespace {

bool Matches(int32_t wanted, size_t actual) {
  return wanted == kAny || static_cast<size_t>(wanted) == actual;
}

}  // namespace

RuleSet::RuleSet(const std::vector<Rule>& rules, Scale scale, bool passes_registered) {
  std::array<std::vector<Rule>, abi::kNumCollectives> applying;
  counts_.total = rules.size();
  for (const Rule& rule : rules) {
    if (!Matches(rule.nodes, scale.nodes) || !Matches(rule.ranks, scale.ranks)) {
      ++counts_.other_scale;
    } else if (rule.registered != kAny && !passes_registered) {
      ++counts_.unknown_registration;
    } else {
      applying[rule.collective].push_back(rule);
    }
  }
  for (size_t i = 0; i < applying.size(); ++i) {
    std::vector<bool> used(applying[i].size());
    tables_[i] = LookupTable(applying[i], &used);
    for (size_t rule = 0; rule < used.size(); ++rule) {
      if (!used[rule]) {
        ++counts_.shadowed;
        continue;
      }
      ++counts_.applied;
      if (applying[i][rule].channels != 0) ++counts_.with_channels;
      if (applying[i][rule].chunk_bytes != 0) ++counts_.with_chunk;
      if (applying[i][rule].registered != kAny) ++counts_.on_registration;
    }
  }
}

}  // namespace nccltune::tuner
