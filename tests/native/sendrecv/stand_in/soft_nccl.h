// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's interface that the stand-in for libnccl.so.2 implements. These are our own
// declarations of public facts.
#pragma once

#include "sendrecv/stand_in/nccl_functions.h"
#include "sendrecv/stand_in/soft_cuda.h"
#include "standard.h"

namespace nccltune::soft {

using ncclResult_t = int;
using ncclComm_t = struct ncclComm*;
using ncclDataType_t = int;
using ncclRedOp_t = int;

inline constexpr ncclResult_t kNcclSuccess = 0;
inline constexpr ncclResult_t kNcclUnhandledCudaError = 1;
inline constexpr ncclResult_t kNcclSystemError = 2;
inline constexpr ncclResult_t kNcclInternalError = 3;
inline constexpr ncclResult_t kNcclInvalidArgument = 4;
inline constexpr ncclResult_t kNcclInvalidUsage = 5;
inline constexpr ncclResult_t kNcclRemoteError = 6;
inline constexpr ncclResult_t kNcclInProgress = 7;

inline constexpr ncclDataType_t kNcclInt8 = 0;
inline constexpr ncclDataType_t kNcclUint8 = 1;
inline constexpr ncclDataType_t kNcclInt32 = 2;
inline constexpr ncclDataType_t kNcclUint64 = 5;
inline constexpr ncclDataType_t kNcclFloat32 = 7;
inline constexpr ncclDataType_t kNcclFloat64 = 8;
inline constexpr ncclRedOp_t kNcclSum = 0;
inline constexpr ncclRedOp_t kNcclBuiltInOps = 5;
inline constexpr int kNcclNoColor = -1;
inline constexpr int kNcclShrinkAbort = 1;

struct ncclUniqueId {
  char internal[128];
};

// The beginning, which is the same in all versions.
struct ncclConfig_t {
  size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = 1;
};

struct ncclTeam_t {
  int ranks;
  int rank;
  int stride;
};

struct ncclSimInfo_t {
  size_t size = sizeof(ncclSimInfo_t);
  unsigned magic = 0x74685283;
  unsigned version = 22809;
  float time = -1;
};

struct ncclWaitSignalDesc_t {
  int count;
  int peer;
  int signal;
  int context;
};

// As of 2.32.
struct ncclCollConfig_t {
  size_t size = sizeof(ncclCollConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 23203;
  void* extensions = nullptr;
  int unset[4] = {INT_MIN, INT_MIN, INT_MIN, INT_MIN};
  const char* algorithms = nullptr;
  int force = 1;
  int policy = INT_MIN;
  uint64_t tag = 0;
  void* event = nullptr;
};

extern "C" {
// Each function also exists as pnccl..., except one.
#define SOFT_NCCL_DECLARE(name, parameters, arguments) \
  SOFT_EXPORT ncclResult_t name parameters;            \
  SOFT_EXPORT ncclResult_t p##name parameters;
#define SOFT_NCCL_DECLARE_OTHER(type, name, parameters, arguments) \
  SOFT_EXPORT type name parameters;                                \
  SOFT_EXPORT type p##name parameters;
SOFT_NCCL_FUNCTIONS(SOFT_NCCL_DECLARE)
SOFT_NCCL_OTHER_FUNCTIONS(SOFT_NCCL_DECLARE_OTHER)
#undef SOFT_NCCL_DECLARE
#undef SOFT_NCCL_DECLARE_OTHER

// Not part of NCCL. Returns how many sends and receives of this process came to the stand-in.
SOFT_EXPORT void softNcclCounts(uint64_t* sends, uint64_t* recvs);
// Not part of NCCL. Returns how many operators and registrations were not released.
SOFT_EXPORT long softNcclLive();
// Not part of NCCL. Returns the calls of this thread since it was last called: a line for each
// call, with arguments and result. The first call starts the trace. The text is valid until the
// next call. Queries are listed only if `caller` is set, because the send/recv library makes
// queries of its own.
SOFT_EXPORT const char* softNcclTrace();
SOFT_EXPORT void softNcclCaller(const char* function);
// Sets how the trace prints an address; null: like any other.
SOFT_EXPORT void softNcclName(const void* address, const char* name);
}

}  // namespace nccltune::soft
