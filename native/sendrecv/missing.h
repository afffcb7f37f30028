// SPDX-License-Identifier: Apache-2.0
//
// What a function of NCCL answers that is not there.
#ifndef NCCLTUNE_SENDRECV_MISSING_H_
#define NCCLTUNE_SENDRECV_MISSING_H_

#include "sendrecv/symbols.h"

namespace nccltune::sendrecv {

// The real NCCL has no function of this name: ncclInvalidUsage.
void* NotInThisNccl(Returns returns);

// There is no real NCCL: ncclSystemError.
void* NoNccl(Returns returns);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_MISSING_H_
