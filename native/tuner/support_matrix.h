// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_SUPPORT_MATRIX_H_
#define NCCLTUNE_TUNER_SUPPORT_MATRIX_H_

#include "tuner/rule_set.h"

namespace nccltune::tuner {

// What interface v2 (NCCL 2.21) tells instead of a cost table, and what it does not tell.
struct WithoutTable {
  int collective = 0;
  int collnet_support = 0;
  int nvls_support = 0;
  Scale scale;
  // The rules were measured on this GPU with this NCCL, so that NCCL itself ran what they name.
  bool measured_here = false;
  // NCCL_ALGO or NCCL_PROTO is set: what they leave is only seen in a cost table.
  bool filtered = false;
};

// Whether NCCL 2.21 can surely run the pair; in doubt it cannot. NCCL 2.21 runs unchecked what a v2
// tuner names.
bool CanRunWithoutTable(const WithoutTable& facts, int algorithm, int protocol);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_SUPPORT_MATRIX_H_
