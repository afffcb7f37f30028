// SPDX-License-Identifier: Apache-2.0
// The pure half of a decision: what an answered table and channel count mean to NCCL.
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
  bool nominal;                      // `offered` is a nominal table: its costs mean nothing
  Combination named;                 // the combination of a v2 plugin, as it came
  int channels;                      // as it came
  std::optional<int> channel_limit;  // the communicator's channels, where known
};

// Fills outcome, choice, selected, channels_requested, table_changed, and adds warnings. Chunk
// sizes come later, once the combination is known.
void Judge(const Answer& answer, Decision* decision);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_JUDGE_H_
