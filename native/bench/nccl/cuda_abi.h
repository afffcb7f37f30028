// SPDX-License-Identifier: Apache-2.0
//
// The part of the CUDA driver interface that the bench uses. Our own declarations of public facts,
// checked against cuda.h of CUDA 12.9; unchanged since CUDA 11.4. A name with a suffix (_v2) is the
// symbol that today's cuda.h maps the plain name to.
#ifndef NCCLTUNE_BENCH_NCCL_CUDA_ABI_H_
#define NCCLTUNE_BENCH_NCCL_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

namespace nccltune::cuda {

using Device = int;
using DevicePointer = unsigned long long;
using Context = struct ContextRecord*;
using Stream = struct StreamRecord*;
using Event = struct EventRecord*;
using Graph = struct GraphRecord*;
using GraphExec = struct GraphExecRecord*;
using Module = struct ModuleRecord*;
using Function = struct FunctionRecord*;

// CUresult: the values with a meaning of their own here.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kNotReady = 600;

// CUdevice_attribute.
inline constexpr int kMultiprocessors = 16;
inline constexpr int kL2CacheSize = 38;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
// CUstreamCaptureMode: NCCL allocates while a graph is captured, which the global mode forbids.
inline constexpr int kCaptureThreadLocal = 1;

struct Uuid {
  char bytes[16];
};
static_assert(sizeof(Uuid) == 16 && sizeof(DevicePointer) == 8 && sizeof(Stream) == 8);

// Functions of libcuda.so.1.
struct Functions {
  Result (*cuInit)(unsigned flags);
  Result (*cuDriverGetVersion)(int* version);
  Result (*cuGetErrorName)(Result error, const char** name);
  Result (*cuGetErrorString)(Result error, const char** text);
  Result (*cuDeviceGetCount)(int* count);
  Result (*cuDeviceGet)(Device* device, int ordinal);
  Result (*cuDeviceGetName)(char* name, int length, Device device);
  Result (*cuDeviceGetUuid)(Uuid* uuid, Device device);
  Result (*cuDeviceGetAttribute)(int* value, int attribute, Device device);
  Result (*cuDevicePrimaryCtxRetain)(Context* context, Device device);
  Result (*cuDevicePrimaryCtxRelease_v2)(Device device);
  Result (*cuCtxSetCurrent)(Context context);
  Result (*cuMemGetInfo_v2)(size_t* free, size_t* total);
  Result (*cuMemAlloc_v2)(DevicePointer* pointer, size_t bytes);
  Result (*cuMemFree_v2)(DevicePointer pointer);
  Result (*cuMemHostAlloc)(void** pointer, size_t bytes, unsigned flags);
  Result (*cuMemFreeHost)(void* pointer);
  Result (*cuMemcpyHtoDAsync_v2)(DevicePointer to, const void* from, size_t bytes, Stream stream);
  Result (*cuMemcpyDtoHAsync_v2)(void* to, DevicePointer from, size_t bytes, Stream stream);
  Result (*cuMemcpyDtoDAsync_v2)(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
  Result (*cuMemsetD8Async)(DevicePointer to, unsigned char value, size_t bytes, Stream stream);
  Result (*cuStreamCreate)(Stream* stream, unsigned flags);
  Result (*cuStreamDestroy_v2)(Stream stream);
  Result (*cuStreamBeginCapture_v2)(Stream stream, int mode);
  Result (*cuStreamEndCapture)(Stream stream, Graph* graph);
  Result (*cuEventCreate)(Event* event, unsigned flags);
  Result (*cuEventDestroy_v2)(Event event);
  Result (*cuEventRecord)(Event event, Stream stream);
  Result (*cuEventQuery)(Event event);
  Result (*cuEventElapsedTime)(float* milliseconds, Event start, Event end);
  Result (*cuGraphInstantiateWithFlags)(GraphExec* exec, Graph graph, unsigned long long flags);
  Result (*cuGraphLaunch)(GraphExec exec, Stream stream);
  Result (*cuGraphExecDestroy)(GraphExec exec);
  Result (*cuGraphDestroy)(Graph graph);
  Result (*cuModuleLoadData)(Module* module, const void* image);
  Result (*cuModuleUnload)(Module module);
  Result (*cuModuleGetFunction)(Function* function, Module module, const char* name);
  Result (*cuLaunchKernel)(Function function, unsigned blocks_x, unsigned blocks_y,
                           unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                           unsigned threads_z, unsigned shared_bytes, Stream stream,
                           void** parameters, void** extra);
};

}  // namespace nccltune::cuda

#endif  // NCCLTUNE_BENCH_NCCL_CUDA_ABI_H_
