// SPDX-License-Identifier: Apache-2.0
//
// The part of NCCL's interface that the stand-in for libnccl.so.2 has, as of NCCL 2.28. Our own
// declarations of public facts.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_SOFT_NCCL_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_SOFT_NCCL_H_

#include <cstddef>
#include <cstdint>

#include "sendrecv/stand_in/soft_cuda.h"

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
inline constexpr int kNcclNoColor = -1;
inline constexpr int kNcclShrinkAbort = 1;

struct ncclUniqueId {
  char internal[128];
};

// What all versions of it begin with.
struct ncclConfig_t {
  size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = 1;
};

// Each also as pnccl...
#define SOFT_NCCL_FUNCTIONS(F)                                                                     \
  F(ncclGetVersion, (int* version))                                                                \
  F(ncclGetUniqueId, (ncclUniqueId * id))                                                          \
  F(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank))                   \
  F(ncclCommInitRankConfig,                                                                        \
    (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config))               \
  F(ncclCommInitRankScalable,                                                                      \
    (ncclComm_t * comm, int ranks, int rank, int ids, ncclUniqueId* id, ncclConfig_t* config))     \
  F(ncclCommInitAll, (ncclComm_t * comms, int gpus, const int* list))                              \
  F(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config))  \
  F(ncclCommShrink, (ncclComm_t comm, int* excluded, int count, ncclComm_t* made,                  \
                     ncclConfig_t* config, int flags))                                             \
  F(ncclCommFinalize, (ncclComm_t comm))                                                           \
  F(ncclCommDestroy, (ncclComm_t comm))                                                            \
  F(ncclCommAbort, (ncclComm_t comm))                                                              \
  F(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                \
  F(ncclCommCount, (const ncclComm_t comm, int* ranks))                                            \
  F(ncclCommUserRank, (const ncclComm_t comm, int* rank))                                          \
  F(ncclCommCuDevice, (const ncclComm_t comm, int* gpu))                                           \
  F(ncclGroupStart, ())                                                                            \
  F(ncclGroupEnd, ())                                                                              \
  F(ncclSend, (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,     \
               CUstream stream))                                                                   \
  F(ncclRecv,                                                                                      \
    (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))     \
  F(ncclAllReduce, (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, \
                    ncclComm_t comm, CUstream stream))                                             \
  F(ncclBroadcast, (const void* from, void* to, size_t count, ncclDataType_t type, int root,       \
                    ncclComm_t comm, CUstream stream))                                             \
  F(ncclMemAlloc, (void** pointer, size_t bytes))                                                  \
  F(ncclMemFree, (void* pointer))                                                                  \
  F(ncclCommRegister, (const ncclComm_t comm, void* buffer, size_t bytes, void** handle))          \
  F(ncclCommDeregister, (const ncclComm_t comm, void* handle))

extern "C" {
#define SOFT_NCCL_DECLARE(name, parameters) \
  SOFT_EXPORT ncclResult_t name parameters; \
  SOFT_EXPORT ncclResult_t p##name parameters;
SOFT_NCCL_FUNCTIONS(SOFT_NCCL_DECLARE)
#undef SOFT_NCCL_DECLARE
SOFT_EXPORT const char* ncclGetErrorString(ncclResult_t result);
SOFT_EXPORT const char* pncclGetErrorString(ncclResult_t result);
SOFT_EXPORT const char* ncclGetLastError(ncclComm_t comm);
SOFT_EXPORT const char* pncclGetLastError(ncclComm_t comm);

// Not of NCCL: how many sends and receives of this process it was given.
SOFT_EXPORT void softNcclCounts(uint64_t* sends, uint64_t* recvs);
}

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_SOFT_NCCL_H_
