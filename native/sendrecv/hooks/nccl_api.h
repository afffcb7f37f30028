// SPDX-License-Identifier: Apache-2.0
// The parts of NCCL's public C interface that send/recv needs. These are our own declarations of
// public facts, checked against NCCL 2.13.4 to 2.32.3.
#pragma once

#include <cstddef>

#include "abi/nccl_types.h"

namespace nccltune::sendrecv::nccl {

using abi::Result;                           // ncclResult_t
using abi::UniqueId;                         // ncclUniqueId
inline constexpr auto kTimeout = Result{8};  // ncclTimeout, since 2.32

using Comm = struct OpaqueComm*;       // ncclComm_t
using SimInfo = struct OpaqueSimInfo;  // ncclSimInfo_t
using Stream = void*;                  // cudaStream_t
using Window = struct OpaqueWindow*;   // ncclWindow_t

// ncclRedOp_t: values below 5 are built in, the others are created by the application.
enum RedOp : int {};
// The rank of a root or of a peer: an int in NCCL's header.
enum RankArgument : int {};

// ncclDataType_t.
enum DataType : int {
  kInt8 = 0,  // also ncclChar
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,  // since 2.24
  kFloat8e5m2 = 11,  // since 2.24
};

// Returns the bytes of one element, or 0 if the type is not known.
constexpr size_t SizeOf(DataType type) {
  switch (type) {
    case kInt8:
    case kUint8:
    case kFloat8e4m3:
    case kFloat8e5m2:
      return 1;
    case kFloat16:
    case kBfloat16:
      return 2;
    case kInt32:
    case kUint32:
    case kFloat32:
      return 4;
    case kInt64:
    case kUint64:
    case kFloat64:
      return 8;
  }
  return 0;
}

// The beginning of ncclConfig_t, which is the same since 2.14. `size` is the size of the whole
// struct.
struct CommConfig {
  size_t size;
  unsigned magic;    // 0xcafebeef
  unsigned version;  // as ncclGetVersion returns it
  int blocking;      // 0, 1, or INT_MIN if it is not set, which means 1
};

inline constexpr unsigned kMagic = 0xcafebeef;  // NCCL_API_MAGIC

// ncclCollConfig_t of 2.31; later versions only append fields. `size` is the size of the whole
// struct.
struct CollConfig {
  size_t size;
  unsigned magic;  // kMagic
  unsigned version;
  void* extensions;  // a list of structs; NVIDIA's NCCL ignores them
  int min_ctas;
  int max_ctas;
  int nvls_ctas;
  int cga_cluster_size;
  const char* algorithms;  // a string that is valid during the call
};

// ncclWaitSignalDesc_t, since 2.29.
struct WaitSignalDesc {
  int count;
  int peer;
  int signal;
  int context;
};

inline constexpr int kNoColor = -1;     // NCCL_SPLIT_NOCOLOR
inline constexpr int kShrinkAbort = 1;  // NCCL_SHRINK_ABORT

static_assert(sizeof(DataType) == 4 && sizeof(Result) == 4);
static_assert(sizeof(RedOp) == 4 && sizeof(RankArgument) == 4 && sizeof(WaitSignalDesc) == 16);
static_assert(offsetof(CollConfig, extensions) == 16 && offsetof(CollConfig, algorithms) == 40);
static_assert(offsetof(CommConfig, magic) == 8 && offsetof(CommConfig, version) == 12 &&
              offsetof(CommConfig, blocking) == 16);

}  // namespace nccltune::sendrecv::nccl
