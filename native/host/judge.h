// SPDX-License-Identifier: Apache-2.0
// Derives NCCL's decision from the answer that a plugin has already given.
#ifndef NCCLTUNE_HOST_JUDGE_H_
#define NCCLTUNE_HOST_JUDGE_H_

#include "host/cost_table.h"
#include "host/decision.h"
#include "host/nccl_rules.h"

namespace nccltune::host {

struct Answer {
  const NcclRules& rules;
  const CostTable& offered;
  const CostTable& answered;
  bool nominal;                      // `offered` is a nominal table, whose costs mean nothing
  Combination named;                 // the combination that a v2 plugin named, unchecked
  int channels;                      // the plugin's channel count, unchecked
  std::optional<int> channel_limit;  // number of channels of the communicator, if known
};

// Sets outcome, choice, selected, channels_requested and table_changed of the decision, and adds
// warnings. TunerHost adds the chunk size later, when the combination is known.
void Judge(const Answer& answer, Decision* decision);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_JUDGE_H_
