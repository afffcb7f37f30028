// SPDX-License-Identifier: Apache-2.0
//
// Profiler interface v4, symbol ncclProfiler_v4, since NCCL 2.27. It has no events of the calls
// themselves. This header is frozen: a change of layout needs a new version and a new header. Only
// the members that we read are declared. Checked against NCCL 2.27.7.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"

namespace nccltune::abi {

// An event of type kProfileCollective (profiler_v5.h).
struct ProfilerCollectiveV4 {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* type;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// An event of type kProfilePointToPoint.
struct ProfilerPointToPointV4 {
  const char* function;
  void* buffer;
  const char* type;
  size_t count;
  int peer;
  uint8_t channels;
};

struct ProfilerEventV4 {
  uint8_t type;
  void* parent;  // of both events above: the group's handle; without one, NCCL reports neither
  int rank;
  union {
    ProfilerCollectiveV4 collective;
    ProfilerPointToPointV4 point_to_point;
  };
};
static_assert(offsetof(ProfilerEventV4, parent) == 8);
static_assert(offsetof(ProfilerEventV4, collective) == 24);
static_assert(offsetof(ProfilerCollectiveV4, protocol) == 72);
static_assert(sizeof(ProfilerCollectiveV4) == 80);
static_assert(offsetof(ProfilerPointToPointV4, channels) == 36);

// The same as ProfilerV5, but for the arguments of init.
struct ProfilerV4 {
  const char* name;
  Result (*init)(void** context, int* mask, const char* communicator_name, uint64_t communicator_id,
                 int nodes, int ranks, int rank, LogFunction log);
  Result (*start_event)(void* context, void** handle, ProfilerEventV4* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, int state, void* arguments);
  Result (*finalize)(void* context);
};
static_assert(sizeof(ProfilerV4) == 48);

}  // namespace nccltune::abi
