// SPDX-License-Identifier: Apache-2.0
//
// Profiler interface v6, symbol ncclProfiler_v6, since NCCL 2.29: v5 with events of collectives by
// copy engine. This header is frozen: a change of layout needs a new version and a new header. Only
// the members that we read are declared. Checked against NCCL 2.29.7 and 2.30.7.
#pragma once

#include "abi/profiler_v5.h"

namespace nccltune::abi {

inline constexpr uint64_t kProfileCopyEngine = 1U << 12U;
inline constexpr uint64_t kProfileCopyEngineSync = 1U << 13U;
inline constexpr uint64_t kProfileCopyEngineBatch = 1U << 14U;

// An event of type kProfileCopyEngine: one collective by copy engine.
struct ProfilerCopyEngineV6 {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* type;
};

struct ProfilerEventV6 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    ProfilerCollectiveV5 collective;
    ProfilerPointToPointV5 point_to_point;
    ProfilerCollectiveCallV5 collective_call;
    ProfilerPointToPointCallV5 point_to_point_call;
    ProfilerKernelLaunchV5 kernel_launch;
    ProfilerCopyEngineV6 copy_engine;
  };
};
static_assert(offsetof(ProfilerEventV6, copy_engine) == offsetof(ProfilerEventV5, collective));
static_assert(offsetof(ProfilerCopyEngineV6, type) == 48);

using ProfilerV6 = ProfilerWith<ProfilerEventV6>;

}  // namespace nccltune::abi
