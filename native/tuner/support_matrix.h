// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_SUPPORT_MATRIX_H_
#define NCCLTUNE_TUNER_SUPPORT_MATRIX_H_

#include "tuner/rule_set.h"

namespace nccltune::tuner {

// The facts known with interface v2 (NCCL 2.21), which has no cost table.
struct WithoutTable {
  int collective = 0;
  int collnet_support = 0;
  int nvls_support = 0;
  Scale scale;
  // The rules were measured on this type of GPU with this NCCL version, so NCCL could run the
  // choices that they name.
  bool measured_here = false;
  // NCCL_ALGO or NCCL_PROTO is set. Only a cost table shows which pairs remain, so no rule is used.
  bool filtered = false;
};

// Returns whether NCCL 2.21 can certainly run the pair of algorithm and protocol. Returns false if
// in doubt, because NCCL 2.21 runs a v2 tuner's choice unchecked.
bool CanRunWithoutTable(const WithoutTable& facts, int algorithm, int protocol);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_SUPPORT_MATRIX_H_
