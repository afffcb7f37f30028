// SPDX-License-Identifier: Apache-2.0
// The constants of NCCL's cost model, which NCCL passes to a plugin's init (interface v5 and
// later).
#ifndef NCCLTUNE_HOST_MODEL_CONSTANTS_H_
#define NCCLTUNE_HOST_MODEL_CONSTANTS_H_

#include "abi/tuner_v5.h"
#include "host/nccl_rules.h"

namespace nccltune::host {

// Returns NCCL's defaults for that version (2.28 to 2.30); latencies in us, bandwidths in GB/s.
// Source: src/graph/tuning.cc of the release tags 2.28.3 to 2.30.7.
abi::TunerConstantsV5 DefaultConstants(NcclVersion version);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_MODEL_CONSTANTS_H_
