// SPDX-License-Identifier: Apache-2.0
//
// What send/recv needs of NCCL's public C interface. Our own declarations of public facts, checked
// against NCCL 2.13.4 to 2.32.3.
#ifndef NCCLTUNE_SENDRECV_NCCL_API_H_
#define NCCLTUNE_SENDRECV_NCCL_API_H_

#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"

namespace nccltune::sendrecv::nccl {

using abi::Result;                           // ncclResult_t
inline constexpr auto kTimeout = Result{8};  // ncclTimeout, since 2.32

using Comm = struct OpaqueComm*;       // ncclComm_t
using SimInfo = struct OpaqueSimInfo;  // ncclSimInfo_t
using Stream = void*;                  // cudaStream_t

// ncclUniqueId. By value in calls: on the stack on x86-64, behind a pointer on aarch64.
struct UniqueId {
  char internal[128];
};

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

// Bytes of one element; 0: not known.
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

// ncclConfig_t, of which every version begins so (2.14 and later); `size` says how much there is.
struct Config {
  size_t size;
  unsigned magic;    // 0xcafebeef
  unsigned version;  // as ncclGetVersion has it
  int blocking;      // INT_MIN: not set, which is 1
};

inline constexpr int kNoColor = -1;     // NCCL_SPLIT_NOCOLOR
inline constexpr int kShrinkAbort = 1;  // NCCL_SHRINK_ABORT

static_assert(sizeof(UniqueId) == 128 && alignof(UniqueId) == 1);
static_assert(sizeof(DataType) == 4 && sizeof(Result) == 4);
static_assert(offsetof(Config, magic) == 8 && offsetof(Config, version) == 12 &&
              offsetof(Config, blocking) == 16);

}  // namespace nccltune::sendrecv::nccl

#endif  // NCCLTUNE_SENDRECV_NCCL_API_H_
