// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's public interface that a plugin may look for in the process that loads it.
#ifndef NCCLTUNE_HOST_NCCL_STAND_IN_H_
#define NCCLTUNE_HOST_NCCL_STAND_IN_H_

#include "common/nccl_version.h"

namespace nccltune::host {

// From now on the process's exported ncclGetVersion reports this version.
void StandInForNccl(NcclVersion version);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_NCCL_STAND_IN_H_
