// SPDX-License-Identifier: Apache-2.0
//
// What send/recv needs of CUDA's driver interface. Our own declarations of public facts; each
// function by the name and version that libcuda exports, all of them there since CUDA 11.7 but
// those that are marked.
#ifndef NCCLTUNE_SENDRECV_CUDA_API_H_
#define NCCLTUNE_SENDRECV_CUDA_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace nccltune::sendrecv::cu {

// CUresult, as far as it is told apart.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotReady = 600;           // CUDA_ERROR_NOT_READY
inline constexpr Result kPeerAccessEnabled = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

using Device = int;                     // CUdevice
using Context = struct OpaqueContext*;  // CUcontext
using Stream = void*;                   // CUstream
using Event = void*;                    // CUevent
using Pointer = uint64_t;               // CUdeviceptr

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

inline constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kWaitGreaterOrEqual = 0;  // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr unsigned kIpcLazyPeerAccess = 1;   // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr unsigned kHostPortable = 1;        // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kHostDeviceMap = 2;       // CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr int kCaptureNone = 0;              // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCaptureRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED

// CUdevice_attribute.
inline constexpr int kUnifiedAddressing = 41;
inline constexpr int kHostPointerForRegistered = 91;  // ..._CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
inline constexpr int kStreamMemOpsV1 = 92;            // ..._CAN_USE_STREAM_MEM_OPS_V1
inline constexpr int kHostRegister = 99;              // ..._HOST_REGISTER_SUPPORTED
inline constexpr int kStreamMemOps = 122;             // ..._CAN_USE_64_BIT_STREAM_MEM_OPS

// CUpointer_attribute.
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

struct Api {
  Result (*Init)(unsigned flags);
  Result (*DeviceGet)(Device* device, int ordinal);
  Result (*DeviceGetCount)(int* count);
  Result (*DeviceGetAttribute)(int* value, int attribute, Device device);
  Result (*DeviceGetUuid)(Uuid* uuid, Device device);
  Result (*DeviceCanAccessPeer)(int* can, Device device, Device peer);
  Result (*DevicePrimaryCtxRetain)(Context* context, Device device);
  Result (*CtxGetCurrent)(Context* context);
  Result (*CtxPushCurrent)(Context context);
  Result (*CtxPopCurrent)(Context* context);
  Result (*CtxGetDevice)(Device* device);
  Result (*CtxEnablePeerAccess)(Context peer, unsigned flags);
  Result (*StreamCreate)(Stream* stream, unsigned flags);
  Result (*StreamDestroy)(Stream stream);
  Result (*StreamQuery)(Stream stream);
  Result (*StreamIsCapturing)(Stream stream, int* status);
  Result (*ThreadExchangeStreamCaptureMode)(int* mode);
  Result (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Result (*StreamWaitValue32)(Stream stream, Pointer address, uint32_t value, unsigned flags);
  Result (*StreamWriteValue32)(Stream stream, Pointer address, uint32_t value, unsigned flags);
  Result (*EventCreate)(Event* event, unsigned flags);
  Result (*EventDestroy)(Event event);
  Result (*EventRecord)(Event event, Stream stream);
  Result (*EventQuery)(Event event);
  Result (*MemcpyDtoDAsync)(Pointer to, Pointer from, size_t bytes, Stream stream);
  Result (*MemAlloc)(Pointer* address, size_t bytes);
  Result (*MemFree)(Pointer address);
  Result (*MemcpyDtoHAsync)(void* to, Pointer from, size_t bytes, Stream stream);
  Result (*LaunchHostFunc)(Stream stream, void (*function)(void*), void* argument);
  Result (*MemHostAlloc)(void** address, size_t bytes, unsigned flags);
  Result (*MemFreeHost)(void* address);
  Result (*MemHostRegister)(void* address, size_t bytes, unsigned flags);
  Result (*MemHostUnregister)(void* address);
  Result (*PointerGetAttributes)(unsigned count, const int* attributes, void** values,
                                 Pointer pointer);
  Result (*IpcGetMemHandle)(IpcMemory* handle, Pointer address);
  Result (*IpcOpenMemHandle)(Pointer* address, IpcMemory handle, unsigned flags);
  Result (*IpcCloseMemHandle)(Pointer address);
  Result (*GetErrorName)(Result result, const char** name);
  Result (*CtxRecordEvent)(Context context, Event event);  // null before CUDA 12.5
  // Virtual memory management; each null where the driver lacks it.
  Result (*MemRetainAllocationHandle)(Memory* memory, void* address);
  Result (*MemGetAllocationPropertiesFromHandle)(MemoryProperties* properties, Memory memory);
  Result (*MemExportToShareableHandle)(void* shareable, Memory memory, int type,
                                       unsigned long long flags);
  Result (*MemImportFromShareableHandle)(Memory* memory, void* shareable, int type);
  Result (*MemRelease)(Memory memory);
  Result (*MemAddressReserve)(Pointer* address, size_t bytes, size_t alignment, Pointer wanted,
                              unsigned long long flags);
  Result (*MemAddressFree)(Pointer address, size_t bytes);
  Result (*MemMap)(Pointer address, size_t bytes, size_t offset, Memory memory,
                   unsigned long long flags);
  Result (*MemUnmap)(Pointer address, size_t bytes);
  Result (*MemSetAccess)(Pointer address, size_t bytes, const MemoryAccess* access, size_t count);
};

// libcuda, opened once a process. Null: there is none, or it lacks a function, and `why` says so.
const Api* Open(std::string* why);

// "CUDA_ERROR_INVALID_VALUE".
std::string NameOf(const Api& api, Result result);

}  // namespace nccltune::sendrecv::cu

#endif  // NCCLTUNE_SENDRECV_CUDA_API_H_
