// SPDX-License-Identifier: Apache-2.0
// Which model constants a plugin edited.
#ifndef NCCLTUNE_HOST_CONSTANTS_DIFF_H_
#define NCCLTUNE_HOST_CONSTANTS_DIFF_H_

#include <string>
#include <vector>

#include "host/guarded.h"

namespace nccltune::host {

struct ConstantChange {
  std::string name;  // NCCL's: "perChMaxTreeBws[3][2]"
  double before;
  double after;
};

// All constants in the order of the struct.
std::vector<double> ConstantValues(const GuardedBytes& constants);

// What differs between two lists, which are of TunerConstantsV5 or TunerConstantsV7 by their
// length.
std::vector<ConstantChange> ConstantChanges(const std::vector<double>& before,
                                            const std::vector<double>& after);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_CONSTANTS_DIFF_H_
