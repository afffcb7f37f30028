// SPDX-License-Identifier: Apache-2.0
//
// Substitute functions, for use where the real NCCL lacks a function or no NCCL was found.
#ifndef NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_
#define NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_

#include "sendrecv/symbols.h"

namespace nccltune::sendrecv {

// Returns a substitute for a function that the real NCCL lacks. `returns` is the type of its
// result: for a result code the substitute returns ncclInvalidUsage, for a text an error text, for
// a number or a team zeros.
void* SubstituteForMissing(Returns returns);

// Returns a substitute for any function if no real NCCL was found. The substitute differs from that
// of SubstituteForMissing in its result code, ncclSystemError, and in its error text.
void* SubstituteWithoutNccl(Returns returns);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ABSENT_SYMBOLS_H_
