// SPDX-License-Identifier: Apache-2.0
//
// The functions that replace NCCL's and call the interceptor.
#ifndef NCCLTUNE_SENDRECV_ENTRIES_H_
#define NCCLTUNE_SENDRECV_ENTRIES_H_

#include <span>

#include "sendrecv/interpose.h"
#include "sendrecv/real_nccl.h"

namespace nccltune::sendrecv {

// One intercepted function of NCCL, under one of its two names.
struct Intercepted {
  const char* symbol;  // "ncclSend" or "pncclSend"
  void* entry;      // what programs call: it calls the interceptor, or NCCL if NCCL itself calls it
  void** original;  // NCCL's function of this name; set before the first call of `entry`
};

std::span<const Intercepted> AllIntercepted();

// Fills all function pointers of `native`.
void Bind(const RealNccl& nccl, Native* native);

// Sets the interceptor of the process. Call it after every `original` is set and before the first
// call of any entry. The interceptor is never destroyed.
void Install(Interceptor* interceptor, const CodeRange& nccl);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ENTRIES_H_
