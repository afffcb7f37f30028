// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API that nccltune calls. The declarations are our own and were
// compared with cuda.h of CUDA 12.9. No program links against libcuda; the library is opened at run
// time.
#pragma once

#include <cstdint>
#include <string>

namespace nccltune::cu {

// CUresult and the values that nccltune handles.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotReady = 600;           // CUDA_ERROR_NOT_READY
inline constexpr Result kNotSupported = 801;       // CUDA_ERROR_NOT_SUPPORTED
inline constexpr Result kPeerAccessEnabled = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

using Device = int;                         // CUdevice
using Context = struct OpaqueContext*;      // CUcontext
using Stream = void*;                       // CUstream
using Event = void*;                        // CUevent
using Graph = struct OpaqueGraph*;          // CUgraph
using GraphExec = struct OpaqueGraphExec*;  // CUgraphExec
using Module = struct OpaqueModule*;        // CUmodule
using Function = struct OpaqueFunction*;    // CUfunction
using Pointer = uint64_t;                   // CUdeviceptr

struct Uuid {  // CUuuid
  char bytes[16];
};
struct IpcMemory {  // CUipcMemHandle
  char reserved[64];
};
using Memory = unsigned long long;  // CUmemGenericAllocationHandle
struct MemoryLocation {             // CUmemLocation
  int type = 0;
  int id = 0;
};
struct MemoryAccess {  // CUmemAccessDesc
  MemoryLocation location;
  int flags = 0;
};
struct MemoryProperties {  // CUmemAllocationProp
  int type = 0;
  int handle_types = 0;
  MemoryLocation location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
static_assert(sizeof(MemoryAccess) == 12 && sizeof(MemoryProperties) == 32);
static_assert(sizeof(Uuid) == 16 && sizeof(IpcMemory) == 64 && sizeof(Stream) == 8);

inline constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventDefault = 0;        // CU_EVENT_DEFAULT
inline constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kWaitGreaterOrEqual = 0;  // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr unsigned kIpcLazyPeerAccess = 1;   // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr unsigned kHostPortable = 1;        // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kHostDeviceMap = 2;       // CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr int kCaptureNone = 0;              // CU_STREAM_CAPTURE_STATUS_NONE
// Values of CUstreamCaptureMode. The global mode (0) is not used: it forbids memory allocation
// during a capture, and NCCL allocates memory then.
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kCaptureRelaxed = 2;

// Values of CUdevice_attribute. A leading ... stands for CU_DEVICE_ATTRIBUTE.
inline constexpr int kMultiprocessors = 16;
inline constexpr int kL2CacheSize = 38;
inline constexpr int kUnifiedAddressing = 41;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr int kHostPointerForRegistered = 91;  // ..._CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
inline constexpr int kStreamMemOpsV1 = 92;            // ..._CAN_USE_STREAM_MEM_OPS_V1
inline constexpr int kHostRegister = 99;              // ..._HOST_REGISTER_SUPPORTED
inline constexpr int kStreamMemOps = 122;             // ..._CAN_USE_64_BIT_STREAM_MEM_OPS

// Values of CUpointer_attribute. A leading ... stands for CU_POINTER_ATTRIBUTE.
inline constexpr int kMemoryType = 2;
inline constexpr int kBufferId = 7;
inline constexpr int kIsManaged = 8;
inline constexpr int kDeviceOrdinal = 9;
inline constexpr int kLegacyIpc = 10;  // ..._IS_LEGACY_CUDA_IPC_CAPABLE
inline constexpr int kRangeStart = 11;
inline constexpr int kRangeSize = 12;
inline constexpr int kMappingSize = 18;
inline constexpr int kMappingBase = 19;
inline constexpr int kMemoryBlockId = 20;
inline constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE

inline constexpr int kPosixDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr int kOnDevice = 1;         // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kReadWrite = 3;        // CU_MEM_ACCESS_FLAGS_PROT_READWRITE

// The caller of CUDA: nccltune-bench, the send/receive library, or both; and the recorder. Each
// caller requires the functions that cuda_functions.inc lists for it. Other functions may be null.
enum Caller : unsigned { kNobody = 0, kBench = 1, kSendRecv = 2, kBoth = 3, kRecorder = 4 };

// Pointers to the functions of libcuda, named without the prefix "cu".
struct Api {
// clang-tidy asks for parentheses around macro arguments. A declarator and a parameter list cannot
// have any.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define NCCLTUNE_CUDA(caller, name, symbol, parameters) Result(*name) parameters = nullptr;
#include "common/cuda_functions.inc"
#undef NCCLTUNE_CUDA
};

// Opens libcuda.so.1 and fills `api`. The library stays loaded. Returns an error text if the
// library is missing or lacks a function that `caller` requires; empty on success.
std::string Load(Caller caller, Api* api);

// Returns the name of a CUDA result, such as "CUDA_ERROR_INVALID_VALUE".
std::string NameOf(const Api& api, Result result);

}  // namespace nccltune::cu
