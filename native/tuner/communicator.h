// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_COMMUNICATOR_H_
#define NCCLTUNE_TUNER_COMMUNICATOR_H_

#include "tuner/granted_chunks.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

// What the plugin keeps for one communicator between init and destroy. But for `chunks` it
// never changes after init, so that calls from any thread read it without a lock.
struct Communicator {
  RuleSet rules;
  Scale scale;
  int interface_version = 0;
  // For v2, see support_matrix.h.
  bool measured_here = false;
  bool filtered = false;
  // Touched only where a rule of the collective has a chunk size.
  mutable GrantedChunks chunks;
};

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_COMMUNICATOR_H_
