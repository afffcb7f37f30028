// SPDX-License-Identifier: Apache-2.0
//
// Profiler interface v7, symbol ncclProfiler_v7, since NCCL 2.31: v6 with more members at the ends
// of the events, and the phases of kernels. NCCL 2.32 looks for it first. This header is frozen: a
// change of layout needs a new version and a new header. Only the members that we read are
// declared. Checked against the source of NCCL 2.31.
#pragma once

#include "abi/profiler_v6.h"

namespace nccltune::abi {

struct ProfilerCollectiveV7 {
  ProfilerCollectiveV5 v5;
  const char* variant;  // of a symmetric kernel, "AGxLL_R"; else null
  bool symmetric;       // algorithm is then a part of the variant, and protocol is empty
};

struct ProfilerEventV7 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    ProfilerCollectiveV7 collective;
    ProfilerPointToPointV5 point_to_point;
    ProfilerCollectiveCallV5 collective_call;
    ProfilerPointToPointCallV5 point_to_point_call;
    ProfilerKernelLaunchV5 kernel_launch;
    ProfilerCopyEngineV6 copy_engine;
  };
};
static_assert(offsetof(ProfilerEventV7, collective) == offsetof(ProfilerEventV5, collective));
static_assert(sizeof(ProfilerCollectiveV7) == sizeof(ProfilerCollectiveV5) + 16);

using ProfilerV7 = ProfilerWith<ProfilerEventV7>;

}  // namespace nccltune::abi
