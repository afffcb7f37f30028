// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's interface that the bench uses. These are our own declarations, checked against
// nccl.h of NCCL 2.21.5, 2.23.4, 2.28.9, 2.30.7 and 2.32.3, where they are identical.
#pragma once

#include <cstddef>

#include "abi/nccl_types.h"
#include "abi/tuner.h"
#include "common/cuda_api.h"

namespace nccltune::nccl {

// ncclResult_t. abi::Result names the numbers up to 7. Number 8 is ncclTimeout, since NCCL 2.31.
using Result = int;

using Comm = struct CommRecord*;

using abi::UniqueId;

// ncclDataType_t has the numbers of bench::Dtype, ncclRedOp_t those of bench::Redop.
using DataType = int;
using RedOp = int;

// clang-format off
// The functions of libnccl.so.2 that we use: result, name, parameters. Counts are in elements.
#define NCCLTUNE_NCCL_FUNCTIONS(F)                                                                \
  F(Result, ncclGetVersion, (int* version))                                                       \
  F(Result, ncclGetUniqueId, (UniqueId* id))                                                     \
  F(const char*, ncclGetErrorString, (Result result))                                             \
  F(const char*, ncclGetLastError, (Comm comm))                                                   \
  F(Result, ncclCommInitRank, (Comm* comm, int ranks, UniqueId id, int rank))                    \
  F(Result, ncclCommDestroy, (Comm comm))                                                         \
  F(Result, ncclCommAbort, (Comm comm))                                                           \
  F(Result, ncclCommGetAsyncError, (Comm comm, Result* error))                                   \
  F(Result, ncclMemAlloc, (void** pointer, size_t bytes))                                         \
  F(Result, ncclMemFree, (void* pointer))                                                         \
  F(Result, ncclCommRegister, (Comm comm, void* buffer, size_t bytes, void** handle))             \
  F(Result, ncclCommDeregister, (Comm comm, void* handle))                                        \
  F(Result, ncclGroupStart, ())                                                                   \
  F(Result, ncclGroupEnd, ())                                                                     \
  F(Result, ncclBroadcast,                                                                        \
    (const void* send, void* receive, size_t count, DataType type, int root, Comm comm,           \
     cu::Stream stream))                                                                          \
  F(Result, ncclReduce,                                                                           \
    (const void* send, void* receive, size_t count, DataType type, RedOp op, int root, Comm comm, \
     cu::Stream stream))                                                                          \
  F(Result, ncclAllGather,                                                                        \
    (const void* send, void* receive, size_t send_count, DataType type, Comm comm,                \
     cu::Stream stream))                                                                          \
  F(Result, ncclReduceScatter,                                                                    \
    (const void* send, void* receive, size_t receive_count, DataType type, RedOp op, Comm comm,   \
     cu::Stream stream))                                                                          \
  F(Result, ncclAllReduce,                                                                        \
    (const void* send, void* receive, size_t count, DataType type, RedOp op, Comm comm,           \
     cu::Stream stream))                                                                          \
  F(Result, ncclSend,                                                                             \
    (const void* send, size_t count, DataType type, int peer, Comm comm, cu::Stream stream))      \
  F(Result, ncclRecv,                                                                             \
    (void* receive, size_t count, DataType type, int peer, Comm comm, cu::Stream stream))
// clang-format on

struct Functions {
// The macro arguments are declarators and parameter lists, which cannot be put in parentheses.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define NCCLTUNE_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  NCCLTUNE_NCCL_FUNCTIONS(NCCLTUNE_MEMBER)
#undef NCCLTUNE_MEMBER
};

}  // namespace nccltune::nccl
