// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's driver interface that the stand-in for libcuda.so.1 implements. Test programs
// and the stand-in itself use it. These are our own declarations of public facts.
#pragma once

#include "standard.h"

#define SOFT_EXPORT __attribute__((visibility("default")))

namespace nccltune::soft {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUmemGenericAllocationHandle = unsigned long long;
using CUhostFn = void (*)(void*);

// CUresult.
inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kInvalidValue = 1;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNotInitialized = 3;
inline constexpr CUresult kNoDevice = 100;
inline constexpr CUresult kInvalidDevice = 101;
inline constexpr CUresult kInvalidContext = 201;
inline constexpr CUresult kPeerAccessUnsupported = 217;
inline constexpr CUresult kInvalidHandle = 400;
inline constexpr CUresult kNotFound = 500;
inline constexpr CUresult kNotReady = 600;
inline constexpr CUresult kIllegalAddress = 700;
inline constexpr CUresult kPeerAccessAlreadyEnabled = 704;
inline constexpr CUresult kHostMemoryAlreadyRegistered = 712;
inline constexpr CUresult kHostMemoryNotRegistered = 713;
inline constexpr CUresult kNotSupported = 801;
inline constexpr CUresult kStreamCaptureUnsupported = 900;
inline constexpr CUresult kStreamCaptureInvalidated = 901;
inline constexpr CUresult kStreamCaptureUnmatched = 903;
inline constexpr CUresult kStreamCaptureUnjoined = 904;
inline constexpr CUresult kCapturedEvent = 907;

// CUstreamCaptureMode.
inline constexpr int kCaptureGlobal = 0;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kCaptureRelaxed = 2;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kWaitGeq = 0;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;

// CUpointer_attribute and CUmemorytype.
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerLegacyIpcCapable = 10;
inline constexpr int kPointerRangeStart = 11;
inline constexpr int kPointerRangeSize = 12;
inline constexpr int kPointerMappingSize = 18;
inline constexpr int kPointerMappingBase = 19;
inline constexpr int kPointerMemoryBlockId = 20;
inline constexpr unsigned kMemoryHost = 1;
inline constexpr unsigned kMemoryDevice = 2;

struct CUuuid {
  char bytes[16];
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUmemLocation {
  int type;  // 1: device
  int id;
};

struct CUmemAllocationProp {
  int type;                  // 1: pinned
  int requestedHandleTypes;  // 1: POSIX file descriptor
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;  // 0: none, 1: read, 3: read and write
};

static_assert(sizeof(CUmemAllocationProp) == 32);
static_assert(sizeof(CUmemAccessDesc) == 12 && sizeof(CUipcMemHandle) == 64);

extern "C" {
SOFT_EXPORT CUresult cuInit(unsigned flags);
SOFT_EXPORT CUresult cuDriverGetVersion(int* version);
SOFT_EXPORT CUresult cuGetErrorName(CUresult error, const char** name);
SOFT_EXPORT CUresult cuGetErrorString(CUresult error, const char** text);
SOFT_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal);
SOFT_EXPORT CUresult cuDeviceGetCount(int* count);
SOFT_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device);
SOFT_EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device);
SOFT_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device);
SOFT_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer);
SOFT_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
SOFT_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
SOFT_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
SOFT_EXPORT CUresult cuCtxGetCurrent(CUcontext* context);
SOFT_EXPORT CUresult cuCtxSetCurrent(CUcontext context);
SOFT_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
SOFT_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context);
SOFT_EXPORT CUresult cuCtxGetDevice(CUdevice* device);
SOFT_EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event);
SOFT_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long* id);
SOFT_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
SOFT_EXPORT CUresult cuCtxSynchronize();

SOFT_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags);
SOFT_EXPORT CUresult cuStreamGetPriority(CUstream stream, int* priority);
SOFT_EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
SOFT_EXPORT CUresult cuStreamSynchronize(CUstream stream);
SOFT_EXPORT CUresult cuStreamQuery(CUstream stream);
SOFT_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context);
SOFT_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int* status);
SOFT_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
SOFT_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode);
SOFT_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph);
SOFT_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                 unsigned long long flags);
SOFT_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
SOFT_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec);
SOFT_EXPORT CUresult cuGraphDestroy(CUgraph graph);
SOFT_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags);
SOFT_EXPORT CUresult cuEventDestroy_v2(CUevent event);
SOFT_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream);
SOFT_EXPORT CUresult cuEventSynchronize(CUevent event);
SOFT_EXPORT CUresult cuEventQuery(CUevent event);
SOFT_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);
SOFT_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
SOFT_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image);
SOFT_EXPORT CUresult cuModuleUnload(CUmodule module);
SOFT_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
SOFT_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_bytes, CUstream stream,
                                    void** parameters, void** extra);
SOFT_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data);
SOFT_EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                            unsigned flags);
SOFT_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                             unsigned flags);

SOFT_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUstream stream);
SOFT_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                          CUstream stream);
SOFT_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes,
                                          CUstream stream);
SOFT_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes);
SOFT_EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes);
SOFT_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
SOFT_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                     CUstream stream);

SOFT_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total);
SOFT_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes);
SOFT_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);
SOFT_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream);
SOFT_EXPORT CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags);
SOFT_EXPORT CUresult cuMemFreeHost(void* pointer);
SOFT_EXPORT CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags);
SOFT_EXPORT CUresult cuMemHostUnregister(void* pointer);
SOFT_EXPORT CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** data,
                                            CUdeviceptr pointer);
SOFT_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer);
SOFT_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer);
SOFT_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle,
                                           unsigned flags);
SOFT_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer);

SOFT_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                 const CUmemAllocationProp* prop, unsigned long long flags);
SOFT_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
SOFT_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment,
                                         CUdeviceptr wanted, unsigned long long flags);
SOFT_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes);
SOFT_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags);
SOFT_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes);
SOFT_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes,
                                    const CUmemAccessDesc* access, size_t count);
SOFT_EXPORT CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                  int type, unsigned long long flags);
SOFT_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                    void* shareable, int type);
SOFT_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                 void* pointer);
SOFT_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                            CUmemGenericAllocationHandle handle);
SOFT_EXPORT CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* prop,
                                                   int option);

// Not part of CUDA. While `more` is in effect, SOFT_CUDA_REFUSE ignores the thread's calls.
SOFT_EXPORT void softCudaSpare(int more);
// Returns how many allocations and objects of this process were not released.
SOFT_EXPORT long softCudaLive();
// Makes a stream one of a green context of its primary context.
SOFT_EXPORT void softCudaGreen(CUstream stream);
// Not part of CUDA. Reads or writes what a kernel on that GPU would, from a host function. Returns
// false if the GPU cannot access the address; that is an error of the context.
SOFT_EXPORT bool softCudaRead(CUdevice gpu, CUdeviceptr from, void* to, size_t bytes);
SOFT_EXPORT bool softCudaWrite(CUdevice gpu, CUdeviceptr to, const void* from, size_t bytes);
}

}  // namespace nccltune::soft
