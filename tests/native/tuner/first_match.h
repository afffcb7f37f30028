// SPDX-License-Identifier: Apache-2.0
// The documented meaning of a configuration, implemented simply: row by row, the first one that
// matches and that NCCL can run. The tests use it as reference, and the benchmark as alternative.
#pragma once

#include "standard.h"
#include "tuner/decision.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

inline bool Covers(const Rule& rule, const Call& call, const Scale& scale) {
  return rule.collective == call.collective && call.bytes >= rule.min_bytes &&
         call.bytes <= rule.max_bytes &&
         (rule.nodes == kAny || static_cast<size_t>(rule.nodes) == scale.nodes) &&
         (rule.ranks == kAny || static_cast<size_t>(rule.ranks) == scale.ranks) &&
         (rule.pipe_ops == kAny || rule.pipe_ops == call.pipe_ops) &&
         (rule.registered == kAny || rule.registered == call.registered);
}

template <typename Usable>
const Rule* FirstMatch(const std::vector<Rule>& rules, const Call& call, const Scale& scale,
                       const Usable& usable) {
  for (const Rule& rule : rules) {
    if (Covers(rule, call, scale) && usable(rule.algorithm, rule.protocol)) return &rule;
  }
  return nullptr;
}

}  // namespace nccltune::tuner
