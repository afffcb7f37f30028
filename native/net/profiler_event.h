// SPDX-License-Identifier: Apache-2.0
//
// Events for NCCL's profiler plugins (interface v10 and later): the start and the end of each
// request.
//
// The parent handle (phandle) that NCCL passes for a request lives until `test` reports completion.
// So events are reported only by the threads that call isend, irecv and test. docs/design/net.md
// explains why there is one event per request and none per flow.
#ifndef NCCLTUNE_NET_PROFILER_EVENT_H_
#define NCCLTUNE_NET_PROFILER_EVENT_H_

#include <cstddef>

#include "abi/net_types.h"
#include "abi/profiler_net_v1.h"

namespace nccltune::net {

// Sets the callback of the process; null if there is no profiler.
void TakeProfiler(abi::NetProfilerCallback callback) noexcept;

// Reports the start of a request. `operation` is one of abi::kProfilerSocket*. *event stays null if
// there is no parent or no profiler, or if no profiler has enabled such events. For a null event,
// EndEvent does nothing.
void BeginEvent(int operation, void* parent, size_t bytes, void** event) noexcept;
void EndEvent(void** event) noexcept;

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_PROFILER_EVENT_H_
