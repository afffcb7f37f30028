// SPDX-License-Identifier: Apache-2.0
// The functions that programs call instead of NCCL's. They pass the calls to the interceptor
// (interpose.h).
#pragma once

#include <span>

#include "sendrecv/hooks/interpose.h"
#include "sendrecv/hooks/real_nccl.h"

namespace nccltune::sendrecv {

// One intercepted function of NCCL, under one of its two names.
struct Intercepted {
  const char* symbol;  // "ncclSend" or "pncclSend"
  // The function that programs call: it calls the interceptor, or `original` if NCCL is the caller.
  void* entry;
  void** original;  // NCCL's function of this name; set before the first call of `entry`
};

std::span<const Intercepted> AllIntercepted();

// Sets all function pointers of `native` to the functions of the real NCCL.
void Bind(const RealNccl& nccl, Native* native);

// Sets the interceptor of the process. Call Install after every `original` is set and before the
// first call of any entry. The interceptor is never destroyed.
void Install(Interceptor* interceptor, const CodeRange& nccl);

}  // namespace nccltune::sendrecv
