// SPDX-License-Identifier: Apache-2.0
// NCCL's profiler plugin interface, v4 to v7. These are our own declarations of NCCL's public
// interface; only the members that we read are declared. Checked against NCCL 2.27.7 (v4), 2.28.9,
// 2.29.7 and 2.30.7, and the source of 2.31.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "abi/nccl_types.h"

namespace nccltune::abi {

// The interface exists in several versions: NCCL looks for the symbol ncclProfiler_v<version> of
// its newest version first, and then for older ones (2.32.3 looks for v7 to v1), to which it
// translates. All of them are frozen: a change of layout needs a new version.
//
//   version  since NCCL  adds
//   v4       2.27
//   v5       2.28        events of the calls themselves and of launches; types of 64 bits
//   v6       2.29        events of collectives by copy engine
//   v7       2.31        more members at the ends of the events, and the phases of kernels

// Event types. The same values are the bits of the activation mask, which is `mask` in init.
inline constexpr uint64_t kProfileGroup = 1U << 0U;
inline constexpr uint64_t kProfileCollective = 1U << 1U;
inline constexpr uint64_t kProfilePointToPoint = 1U << 2U;
inline constexpr uint64_t kProfileProxyOp = 1U << 3U;
inline constexpr uint64_t kProfileProxyStep = 1U << 4U;
inline constexpr uint64_t kProfileProxyControl = 1U << 5U;
inline constexpr uint64_t kProfileKernelChannel = 1U << 6U;
inline constexpr uint64_t kProfileNetPlugin = 1U << 7U;
// Since v5.
inline constexpr uint64_t kProfileGroupCall = 1U << 8U;
inline constexpr uint64_t kProfileCollectiveCall = 1U << 9U;
inline constexpr uint64_t kProfilePointToPointCall = 1U << 10U;
inline constexpr uint64_t kProfileKernelLaunch = 1U << 11U;
// Since v6.
inline constexpr uint64_t kProfileCopyEngine = 1U << 12U;
inline constexpr uint64_t kProfileCopyEngineSync = 1U << 13U;
inline constexpr uint64_t kProfileCopyEngineBatch = 1U << 14U;

// An event of type kProfileCollectiveCall: a program called one of NCCL's functions. NCCL reports
// it also if only a type below it is active.
struct ProfilerCollectiveCall {
  const char* function;
  size_t count;  // as the program passed it
  const char* type;
  int root;
  void* stream;
  bool captured;  // into a CUDA graph
};

// An event of type kProfilePointToPointCall.
struct ProfilerPointToPointCall {
  const char* function;
  size_t count;
  const char* type;
  void* stream;
  bool captured;
};

// An event of type kProfileCollective: one enqueued collective.
struct ProfilerCollectiveV4 {
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
};

struct ProfilerCollectiveV5 : ProfilerCollectiveV4 {
  void* parent_group;
};

struct ProfilerCollectiveV7 : ProfilerCollectiveV5 {
  const char* variant;  // of a symmetric kernel, "AGxLL_R"; else null
  bool symmetric;       // algorithm is then a part of the variant, and protocol is empty
};

// An event of type kProfilePointToPoint: one enqueued send or receive.
struct ProfilerPointToPoint {
  const char* function;  // "Send" or "Recv"
  void* buffer;
  const char* type;
  size_t count;
  int peer;
  uint8_t channels;
  void* parent_group;  // since v5
};

// An event of type kProfileKernelLaunch: NCCL launches the kernel of one or several collectives,
// sends and receives. It stops after the launch; these tasks are reported after that.
struct ProfilerKernelLaunch {
  void* stream;
};

// An event of type kProfileCopyEngine: one collective by copy engine.
struct ProfilerCopyEngine {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* type;
};

template <int version>
struct ProfilerEvent {
  std::conditional_t<version == 4, uint8_t, uint64_t> type;
  void* parent;  // v4: of tasks the group's handle; without one, NCCL does not report them
  int rank;
  union {
    std::conditional_t<version == 4, ProfilerCollectiveV4,
                       std::conditional_t<version == 7, ProfilerCollectiveV7, ProfilerCollectiveV5>>
        collective;
    ProfilerPointToPoint point_to_point;
    ProfilerCollectiveCall collective_call;
    ProfilerPointToPointCall point_to_point_call;
    ProfilerKernelLaunch kernel_launch;
    ProfilerCopyEngine copy_engine;
  };
};

template <int number>
struct Profiler {
  static constexpr int kVersion = number;
  using Event = ProfilerEvent<number>;

  // Called once per communicator. *mask holds bits of the event types that NCCL reports. *mask
  // belongs to NCCL and applies to the whole process. The plugin may change *mask at any time; each
  // enqueued call uses the current value.
  using InitV4 = Result(void** context, int* mask, const char* communicator_name,
                        uint64_t communicator_id, int nodes, int ranks, int rank, LogFunction log);
  using InitV5 = Result(void** context, uint64_t communicator_id, int* mask,
                        const char* communicator_name, int nodes, int ranks, int rank,
                        LogFunction log);

  const char* name;
  std::conditional_t<number == 4, InitV4, InitV5>* init;
  // Sets *handle. If *handle is null, NCCL does not call stop_event for the event.
  Result (*start_event)(void* context, void** handle, Event* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, int state, void* arguments);
  Result (*finalize)(void* context);
};

// Also in structs with a base, for which offsetof is conditionally supported.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(ProfilerCollectiveCall, captured) == 40);
static_assert(offsetof(ProfilerPointToPointCall, captured) == 32);
static_assert(offsetof(ProfilerCollectiveV4, channels) == 56);
static_assert(offsetof(ProfilerCollectiveV4, algorithm) == 64);
static_assert(offsetof(ProfilerCollectiveV4, protocol) == 72 && sizeof(ProfilerCollectiveV4) == 80);
static_assert(sizeof(ProfilerCollectiveV5) == 88);
static_assert(sizeof(ProfilerCollectiveV7) == 104);
static_assert(offsetof(ProfilerPointToPoint, channels) == 36 && sizeof(ProfilerPointToPoint) == 48);
static_assert(offsetof(ProfilerCopyEngine, type) == 48);
static_assert(offsetof(ProfilerEvent<4>, parent) == 8 && offsetof(ProfilerEvent<5>, parent) == 8);
static_assert(offsetof(ProfilerEvent<5>, rank) == 16);
static_assert(offsetof(ProfilerEvent<4>, collective) == 24);
static_assert(offsetof(ProfilerEvent<5>, collective) == 24);
static_assert(offsetof(ProfilerEvent<7>, point_to_point) == 24);
static_assert(offsetof(Profiler<5>, name) == 0 && offsetof(Profiler<5>, init) == 8);
static_assert(offsetof(Profiler<5>, start_event) == 16 && offsetof(Profiler<5>, stop_event) == 24);
static_assert(offsetof(Profiler<5>, record_event_state) == 32);
static_assert(offsetof(Profiler<5>, finalize) == 40);
static_assert(sizeof(Profiler<4>) == 48 && sizeof(Profiler<7>) == 48);
#pragma GCC diagnostic pop

}  // namespace nccltune::abi
