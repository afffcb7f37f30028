// SPDX-License-Identifier: Apache-2.0
// The constants of NCCL's cost model, which NCCL passes to a plugin's init (interface v5 and
// later).
#pragma once

#include <string>
#include <vector>

#include "abi/tuner.h"
#include "host/guarded.h"
#include "host/nccl_rules.h"

namespace nccltune::host {

// Returns NCCL's defaults for that version (2.28 to 2.30); latencies in us, bandwidths in GB/s.
// Source: src/graph/tuning.cc of the release tags 2.28.3 to 2.30.7.
abi::TunerConstantsV5 DefaultConstants(NcclVersion version);

// Finds the constants of NCCL's cost model that a plugin has changed.

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
