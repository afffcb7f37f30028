// SPDX-License-Identifier: Apache-2.0
//
// A profiler that asks NCCL 2.28 and later for the events that the recorder asks for
// (native/profiler/adapters.cc), through the same interfaces, and does nothing with them: what
// NCCL's own work for a profiler costs.
#include <cstdint>

#include "abi/profiler.h"
#include "common/export.h"

namespace nccltune {
namespace {

char context_of_all = 0;

template <int version, uint64_t events>
constexpr abi::Profiler<version> Silent() {
  return {.name = "silent",
          .init = [](void** context, uint64_t, int* mask, const char*, int, int, int,
                     abi::LogFunction) -> abi::Result {
            *context = &context_of_all;
            __atomic_store_n(mask, static_cast<int>(events), __ATOMIC_RELAXED);
            return abi::kSuccess;
          },
          .start_event = [](void*, void** handle, abi::ProfilerEvent<version>*) -> abi::Result {
            *handle = nullptr;
            return abi::kSuccess;
          },
          .stop_event = [](void*) -> abi::Result { return abi::kSuccess; },
          .record_event_state = [](void*, int, void*) -> abi::Result { return abi::kSuccess; },
          .finalize = [](void*) -> abi::Result { return abi::kSuccess; }};
}

constexpr uint64_t kV5 = abi::kProfileCollective | abi::kProfilePointToPoint;
constexpr uint64_t kV6 = kV5 | abi::kProfileCopyEngine;

}  // namespace

extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<5> ncclProfiler_v5 = Silent<5, kV5>();
extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<6> ncclProfiler_v6 = Silent<6, kV6>();
extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<7> ncclProfiler_v7 = Silent<7, kV6>();

}  // namespace nccltune
