// SPDX-License-Identifier: Apache-2.0
//
// Substitute functions, for use where the real NCCL lacks a function or no NCCL was found.
#ifndef NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_
#define NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_

#include "sendrecv/symbols.h"

namespace nccltune::sendrecv {

// Returns a substitute for a function that the real NCCL lacks. As its result code the substitute
// returns ncclInvalidUsage. `returns` is the type of its result.
void* SubstituteForMissing(Returns returns);

// Returns a substitute for any function if no real NCCL was found. As its result code the
// substitute returns ncclSystemError.
void* SubstituteWithoutNccl(Returns returns);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_
