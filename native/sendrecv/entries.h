// SPDX-License-Identifier: Apache-2.0
//
// The calls that an interceptor gets.
#ifndef NCCLTUNE_SENDRECV_ENTRIES_H_
#define NCCLTUNE_SENDRECV_ENTRIES_H_

#include <span>

#include "sendrecv/interpose.h"
#include "sendrecv/real_nccl.h"

namespace nccltune::sendrecv {

// One function of NCCL that is intercepted, under one of its two names.
struct Intercepted {
  const char* symbol;  // "ncclSend" or "pncclSend"
  void* entry;         // what a program calls: the interceptor, or NCCL for calls of NCCL itself
  void** original;     // what NCCL has under this name; set before the first call of `entry`
};

std::span<const Intercepted> AllIntercepted();

// Fills all pointers but path and version.
void Bind(const RealNccl& nccl, Native* native);

// For the process, when every `original` is set and before the first call of any entry. The
// interceptor stays.
void Install(Interceptor* interceptor, const CodeRange& nccl);

// The application calls something else that enqueues work.
void TellOfWork() noexcept;

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ENTRIES_H_
