// SPDX-License-Identifier: Apache-2.0
// Finds the constants of NCCL's cost model that a plugin has changed.
#ifndef NCCLTUNE_HOST_CONSTANTS_DIFF_H_
#define NCCLTUNE_HOST_CONSTANTS_DIFF_H_

#include <string>
#include <vector>

#include "host/guarded.h"

namespace nccltune::host {

struct ConstantChange {
  std::string name;  // NCCL's name: "perChMaxTreeBws[3][2]"
  double before;
  double after;
};

// Returns all constants in the order of the struct.
std::vector<double> ConstantValues(const GuardedBytes& constants);

// Returns the differences between two lists of constants. The length of the lists shows whether
// they come from TunerConstantsV5 or from TunerConstantsV7.
std::vector<ConstantChange> ConstantChanges(const std::vector<double>& before,
                                            const std::vector<double>& after);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_CONSTANTS_DIFF_H_
