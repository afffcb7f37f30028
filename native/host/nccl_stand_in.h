// SPDX-License-Identifier: Apache-2.0
// The one function of NCCL, ncclGetVersion, that a plugin may look up in the process that has
// loaded the plugin.
#pragma once

#include "common/nccl_version.h"

namespace nccltune::host {

// Sets the version that the exported ncclGetVersion reports from now on.
void StandInForNccl(NcclVersion version);

}  // namespace nccltune::host
