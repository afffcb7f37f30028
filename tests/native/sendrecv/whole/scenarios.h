// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_SENDRECV_WHOLE_SCENARIOS_H_
#define NCCLTUNE_TESTS_SENDRECV_WHOLE_SCENARIOS_H_

#include "sendrecv/whole/scenario_rank.h"

namespace nccltune::sendrecv {

// Listed in scenario_program.cc.
void RunSplit(ScenarioRank& rank);
void RunAbort(ScenarioRank& rank);
void RunChurn(ScenarioRank& rank);
void RunMillion(ScenarioRank& rank);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WHOLE_SCENARIOS_H_
