// SPDX-License-Identifier: Apache-2.0
//
// Substitutes for functions that the real NCCL lacks.
#ifndef NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_
#define NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_

#include "sendrecv/symbols.h"

namespace nccltune::sendrecv {

// For a function that the real NCCL lacks: returns ncclInvalidUsage.
void* SubstituteForMissing(Returns returns);

// For any function if there is no real NCCL: returns ncclSystemError.
void* SubstituteWithoutNccl(Returns returns);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_
