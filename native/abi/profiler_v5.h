// SPDX-License-Identifier: Apache-2.0
// Profiler interface v5, symbol ncclProfiler_v5, since NCCL 2.28.
// NCCL 2.28 looks for this version first. Later NCCL versions use it if the plugin exports no newer
// symbol (2.32.3 looks for v7 to v1). This header is frozen: a change of layout needs a new version
// and a new header. Only the members that we read are declared. Checked against NCCL 2.28.9, and
// against 2.30.7, which translates its newer interface to v5 for such plugins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"

namespace nccltune::abi {

// Event types. The same values are the bits of the activation mask, which is `mask` in
// ProfilerV5::init.
inline constexpr uint64_t kProfileGroup = 1U << 0U;
inline constexpr uint64_t kProfileCollective = 1U << 1U;
inline constexpr uint64_t kProfilePointToPoint = 1U << 2U;
inline constexpr uint64_t kProfileProxyOp = 1U << 3U;
inline constexpr uint64_t kProfileProxyStep = 1U << 4U;
inline constexpr uint64_t kProfileProxyControl = 1U << 5U;
inline constexpr uint64_t kProfileKernelChannel = 1U << 6U;
inline constexpr uint64_t kProfileNetPlugin = 1U << 7U;
inline constexpr uint64_t kProfileGroupCall = 1U << 8U;
inline constexpr uint64_t kProfileCollectiveCall = 1U << 9U;
inline constexpr uint64_t kProfilePointToPointCall = 1U << 10U;
inline constexpr uint64_t kProfileKernelLaunch = 1U << 11U;

// An event of type kProfileCollectiveCall: a program called one of NCCL's functions. NCCL reports
// it also if only a type below it is active.
struct ProfilerCollectiveCallV5 {
  const char* function;
  size_t count;  // as the program passed it
  const char* type;
  int root;
  void* stream;
  bool captured;  // into a CUDA graph
};

// An event of type kProfilePointToPointCall.
struct ProfilerPointToPointCallV5 {
  const char* function;
  size_t count;
  const char* type;
  void* stream;
  bool captured;
};

// An event of type kProfileCollective: one enqueued collective.
struct ProfilerCollectiveV5 {
  uint64_t sequence;
  const char* function;  // "AllReduce"
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* type;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;  // "TREE", "RING", "COLLNET_DIRECT", ...
  const char* protocol;   // "LL", "LL128", "SIMPLE"
  void* parent_group;
};

// An event of type kProfilePointToPoint: one enqueued send or receive.
struct ProfilerPointToPointV5 {
  const char* function;  // "Send" or "Recv"
  void* buffer;
  const char* type;
  size_t count;
  int peer;
  uint8_t channels;
  void* parent_group;
};

// An event of type kProfileKernelLaunch: NCCL launches the kernel of one or several collectives,
// sends and receives. It stops after the launch; these tasks are reported after that.
struct ProfilerKernelLaunchV5 {
  void* stream;
};

struct ProfilerEventV5 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    ProfilerCollectiveV5 collective;
    ProfilerPointToPointV5 point_to_point;
    ProfilerCollectiveCallV5 collective_call;
    ProfilerPointToPointCallV5 point_to_point_call;
    ProfilerKernelLaunchV5 kernel_launch;
  };
};
static_assert(offsetof(ProfilerEventV5, type) == 0);
static_assert(offsetof(ProfilerEventV5, parent) == 8);
static_assert(offsetof(ProfilerEventV5, rank) == 16);
static_assert(offsetof(ProfilerEventV5, collective) == 24);
static_assert(offsetof(ProfilerEventV5, point_to_point) == 24);
static_assert(offsetof(ProfilerCollectiveV5, channels) == 56);
static_assert(offsetof(ProfilerCollectiveV5, algorithm) == 64);
static_assert(offsetof(ProfilerCollectiveV5, protocol) == 72);
static_assert(sizeof(ProfilerCollectiveV5) == 88);
static_assert(offsetof(ProfilerPointToPointV5, channels) == 36);
static_assert(sizeof(ProfilerPointToPointV5) == 48);
static_assert(offsetof(ProfilerCollectiveCallV5, captured) == 40);
static_assert(offsetof(ProfilerPointToPointCallV5, captured) == 32);

// The functions of v5 to v7, which differ in their events alone.
template <typename Event>
struct ProfilerWith {
  const char* name;

  // Called once per communicator. *mask holds bits of the event types that NCCL reports. *mask
  // belongs to NCCL and applies to the whole process. The plugin may change *mask at any time; each
  // enqueued call uses the current value.
  Result (*init)(void** context, uint64_t communicator_id, int* mask, const char* communicator_name,
                 int nodes, int ranks, int rank, LogFunction log);

  // Sets *handle. If *handle is null, NCCL does not call stop_event for the event.
  Result (*start_event)(void* context, void** handle, Event* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, int state, void* arguments);
  Result (*finalize)(void* context);
};
using ProfilerV5 = ProfilerWith<ProfilerEventV5>;
static_assert(offsetof(ProfilerV5, name) == 0);
static_assert(offsetof(ProfilerV5, init) == 8);
static_assert(offsetof(ProfilerV5, start_event) == 16);
static_assert(offsetof(ProfilerV5, stop_event) == 24);
static_assert(offsetof(ProfilerV5, record_event_state) == 32);
static_assert(offsetof(ProfilerV5, finalize) == 40);
static_assert(sizeof(ProfilerV5) == 48);

}  // namespace nccltune::abi
