// SPDX-License-Identifier: Apache-2.0
//
// What NCCL's profiler plugins hear of requests, since v10: that each began and ended.
//
// NCCL gives a request a parent (phandle) that lives until `test` has said that it is done. All of
// an event is therefore said by the threads that call isend, irecv and test; why there is one a
// request and none a flow is told in docs/design/net.md.
#ifndef NCCLTUNE_NET_PROFILER_EVENT_H_
#define NCCLTUNE_NET_PROFILER_EVENT_H_

#include <cstddef>

#include "abi/net_types.h"
#include "abi/profiler_net_v1.h"

namespace nccltune::net {

// The process's from now on; null: nobody wants to hear.
void TakeProfiler(abi::NetProfilerCallback callback) noexcept;

// `operation` is one of abi::kProfilerSocket*. *event stays null where there is no parent, or no
// profiler, or none that wants such events: then there is nothing to end.
void BeginEvent(int operation, void* parent, size_t bytes, void** event) noexcept;
void EndEvent(void** event) noexcept;

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_PROFILER_EVENT_H_
