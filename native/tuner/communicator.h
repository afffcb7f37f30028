// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_COMMUNICATOR_H_
#define NCCLTUNE_TUNER_COMMUNICATOR_H_

#include "tuner/granted_chunks.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

// The plugin's state of one communicator between init and destroy. Only `chunks` changes after
// init, so any thread may read the other members without a lock.
struct TunerContext {
  RuleSet rules;
  Scale scale;
  int interface_version = 0;
  // The two members below are used only for interface v2; see support_matrix.h.
  bool measured_here = false;
  bool filtered = false;
  // Used only if a rule of the collective has a chunk size.
  mutable GrantedChunks chunks;
};

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_COMMUNICATOR_H_
