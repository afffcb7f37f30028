// SPDX-License-Identifier: Apache-2.0
// The event that NCCL's own TCP transport reports to profiler plugins, version 1, since NCCL 2.26.
// This header is frozen: a change of layout needs a new version and a new header. These are our own
// declarations of NCCL's public interface, checked against NCCL 2.26.2 to 2.30.7.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nccltune::abi {

// The argument `plugin` of NetProfilerCallback. Bits 16 and up hold the kind of network: 2 is
// NCCL_PROFILER_NET_TYPE_SOCK. The lower 16 bits hold the version of the description: 1.
inline constexpr int64_t kProfilerNetSocketV1 = (int64_t{2} << 16) | 1;

// ncclProfileSocket: the only type of event.
inline constexpr uint8_t kProfilerSocketTransfer = 1;

inline constexpr int kProfilerSocketSend = 0;
inline constexpr int kProfilerSocketReceive = 1;

// NCCL's name: ncclProfilerNetSockDescr_v1_t.
struct ProfilerNetSocketV1 {
  uint8_t type;
  alignas(8) int fd;  // the first member of a union that also contains a size_t
  int operation;
  size_t bytes;
};
static_assert(offsetof(ProfilerNetSocketV1, type) == 0);
static_assert(offsetof(ProfilerNetSocketV1, fd) == 8);
static_assert(offsetof(ProfilerNetSocketV1, operation) == 12);
static_assert(offsetof(ProfilerNetSocketV1, bytes) == 16);
static_assert(sizeof(ProfilerNetSocketV1) == 24);

}  // namespace nccltune::abi
