// SPDX-License-Identifier: Apache-2.0
//
// The part of NCCL's interface that the bench uses. Our own declarations of public facts, checked
// against nccl.h of NCCL 2.21.5, 2.23.4, 2.28.9, 2.30.7 and 2.32.3, where they are the same.
#ifndef NCCLTUNE_BENCH_NCCL_NCCL_ABI_H_
#define NCCLTUNE_BENCH_NCCL_NCCL_ABI_H_

#include <cstddef>

#include "abi/tuner_types.h"
#include "bench/nccl/cuda_abi.h"

namespace nccltune::nccl {

// ncclResult_t, whose numbers to 7 are in abi::Result; 8 is ncclTimeout (2.31).
using Result = int;

using Comm = struct CommRecord*;

// Passed by value.
struct UniqueId {
  char bytes[128];
};
static_assert(sizeof(UniqueId) == 128);

// ncclDataType_t, as bench::Dtype numbers it; ncclRedOp_t: 0 to 4, and what
// ncclRedOpCreatePreMulSum makes.
using DataType = int;
using RedOp = int;

// ncclScalarResidence_t: the scalar is read before the call returns.
inline constexpr int kScalarHostImmediate = 1;

// Functions of libnccl.so.2. Counts are in elements.
struct Functions {
  Result (*ncclGetVersion)(int* version);
  Result (*ncclGetUniqueId)(UniqueId* id);
  const char* (*ncclGetErrorString)(Result result);
  const char* (*ncclGetLastError)(Comm comm);
  Result (*ncclCommInitRank)(Comm* comm, int ranks, UniqueId id, int rank);
  Result (*ncclCommDestroy)(Comm comm);
  Result (*ncclCommAbort)(Comm comm);
  Result (*ncclCommGetAsyncError)(Comm comm, Result* error);
  Result (*ncclMemAlloc)(void** pointer, size_t bytes);
  Result (*ncclMemFree)(void* pointer);
  Result (*ncclCommRegister)(Comm comm, void* buffer, size_t bytes, void** handle);
  Result (*ncclCommDeregister)(Comm comm, void* handle);
  Result (*ncclRedOpCreatePreMulSum)(RedOp* op, void* scalar, DataType type, int residence,
                                     Comm comm);
  Result (*ncclRedOpDestroy)(RedOp op, Comm comm);
  Result (*ncclGroupStart)();
  Result (*ncclGroupEnd)();
  Result (*ncclBroadcast)(const void* send, void* receive, size_t count, DataType type, int root,
                          Comm comm, cuda::Stream stream);
  Result (*ncclReduce)(const void* send, void* receive, size_t count, DataType type, RedOp op,
                       int root, Comm comm, cuda::Stream stream);
  Result (*ncclAllGather)(const void* send, void* receive, size_t send_count, DataType type,
                          Comm comm, cuda::Stream stream);
  Result (*ncclReduceScatter)(const void* send, void* receive, size_t receive_count, DataType type,
                              RedOp op, Comm comm, cuda::Stream stream);
  Result (*ncclAllReduce)(const void* send, void* receive, size_t count, DataType type, RedOp op,
                          Comm comm, cuda::Stream stream);
  Result (*ncclSend)(const void* send, size_t count, DataType type, int peer, Comm comm,
                     cuda::Stream stream);
  Result (*ncclRecv)(void* receive, size_t count, DataType type, int peer, Comm comm,
                     cuda::Stream stream);
};

}  // namespace nccltune::nccl

#endif  // NCCLTUNE_BENCH_NCCL_NCCL_ABI_H_
