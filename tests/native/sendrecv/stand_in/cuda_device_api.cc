// SPDX-License-Identifier: Apache-2.0
// Initialisation, devices and contexts.
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

constexpr int kVersion = 13000;

const char* NameOf(CUresult error) {
  static const auto& names = *new std::map<CUresult, const char*>{
      {kCudaSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
      {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kStreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
      {kStreamCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT"},
  };
  const auto found = names.find(error);
  return found == names.end() ? nullptr : found->second;
}

bool IsDevice(CUdevice device) { return device >= 0 && device < Machine::Get().options.gpus; }

// Those that the library and the bench ask for.
int Attribute(int attribute) {
  const CudaOptions& options = Machine::Get().options;
  const auto capability =
      static_cast<int>(NumberOf("SOFT_CUDA_CAPABILITY", options.Lacks("hopper") ? 80 : 90));
  switch (attribute) {
    case 16:  // MULTIPROCESSOR_COUNT
      return 4;
    case 38:  // L2_CACHE_SIZE
      return 256 << 10;
    case 41:  // UNIFIED_ADDRESSING
      return 1;
    case 75:  // COMPUTE_CAPABILITY_MAJOR
      return capability / 10;
    case 76:  // COMPUTE_CAPABILITY_MINOR
      return capability % 10;
    case 91:  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    case 99:  // HOST_REGISTER_SUPPORTED
      return options.Lacks("hostregister") ? 0 : 1;
    case 92:   // CAN_USE_STREAM_MEM_OPS_V1
    case 122:  // CAN_USE_64_BIT_STREAM_MEM_OPS
      return options.Lacks("memops") ? 0 : 1;
    default:
      return 0;
  }
}

}  // namespace

CUresult cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (const long long error = NumberOf("SOFT_CUDA_INIT", 0)) return static_cast<CUresult>(error);
  Machine::Start();
  return Enter(__func__);
}

CUresult cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kCudaSuccess;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = NameOf(error);
  return *name == nullptr ? kInvalidValue : kCudaSuccess;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == kCudaSuccess ? "no error" : "an error of the stand-in";
  return NameOf(error) == nullptr ? kInvalidValue : kCudaSuccess;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SOFT_ENTER();
  if (!IsDevice(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kCudaSuccess;
}

CUresult cuDeviceGetCount(int* count) {
  SOFT_ENTER();
  *count = Machine::Get().options.gpus;
  return kCudaSuccess;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  SOFT_ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(length), "GPU in software");
  return kCudaSuccess;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  SOFT_ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  *value = Attribute(attribute);
  return kCudaSuccess;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  SOFT_ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  const std::string text = "soft-gpu-" + std::to_string(device);
  std::memcpy(uuid->bytes, text.data(), std::min(text.size(), sizeof uuid->bytes));
  // Processes that stand for hosts have GPUs of their own.
  const pid_t process = NumberOf("SOFT_CUDA_OWN_GPUS", 0) == 1 ? getpid() : 0;
  std::memcpy(&uuid->bytes[12], &process, sizeof process);
  return kCudaSuccess;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  SOFT_ENTER();
  if (!IsDevice(device) || !IsDevice(peer)) return kInvalidDevice;
  *can = device != peer && !Machine::Get().options.Lacks("peer") ? 1 : 0;
  return kCudaSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  SOFT_ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  const std::scoped_lock lock(Machine::Get().mutex);
  Context& found = *Machine::Get().contexts[static_cast<size_t>(device)];
  ++found.retained;
  *context = HandleOf(&found);
  return kCudaSuccess;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SOFT_ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  const std::scoped_lock lock(Machine::Get().mutex);
  Context& found = *Machine::Get().contexts[static_cast<size_t>(device)];
  if (found.retained == 0) return kInvalidContext;
  --found.retained;
  return kCudaSuccess;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SOFT_ENTER();
  if (!IsDevice(device)) return kInvalidDevice;
  Context& context = *Machine::Get().contexts[static_cast<size_t>(device)];
  SynchronizeContext(context);
  Memory::Get().RemoveAll(device);
  const std::scoped_lock lock(Machine::Get().mutex);
  Machine::Get().DestroyAll(context);
  ++context.resets;
  return kCudaSuccess;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  SOFT_ENTER();
  *context = HandleOf(Current());
  return kCudaSuccess;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  SOFT_ENTER();
  std::vector<Context*>& stack = ContextStack();
  Context* const found = ContextOf(context);
  if (context != nullptr && found == nullptr) return kInvalidContext;
  if (!stack.empty()) stack.pop_back();
  if (found != nullptr) stack.push_back(found);
  return kCudaSuccess;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SOFT_ENTER();
  Context* const found = ContextOf(context);
  if (found == nullptr) return kInvalidContext;
  ContextStack().push_back(found);
  return kCudaSuccess;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  SOFT_ENTER();
  if (Current() == nullptr) return kInvalidContext;
  if (context != nullptr) *context = HandleOf(Current());
  ContextStack().pop_back();
  return kCudaSuccess;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  SOFT_ENTER();
  if (Current() == nullptr) return kInvalidContext;
  *device = Current()->gpu;
  return kCudaSuccess;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  SOFT_ENTER();
  const Context* const found = context == nullptr ? Current() : ContextOf(context);
  if (found == nullptr) return kInvalidContext;
  // In CUDA there is no id after a reset until the context is used again.
  const std::scoped_lock lock(Machine::Get().mutex);
  *id = 1 + static_cast<size_t>(found->gpu) + found->resets * Machine::Get().contexts.size();
  return kCudaSuccess;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  SOFT_ENTER_CONTEXT();
  const Context* const found = ContextOf(peer);
  if (found == nullptr || found == Current()) return kInvalidContext;
  if (flags != 0) return kInvalidValue;
  if (Machine::Get().options.Lacks("peer")) return kPeerAccessUnsupported;
  const std::scoped_lock lock(Machine::Get().mutex);
  const uint64_t bit = uint64_t{1} << found->gpu;
  if ((Current()->peers & bit) != 0) return kPeerAccessAlreadyEnabled;
  Current()->peers |= bit;
  return kCudaSuccess;
}

CUresult cuCtxSynchronize() {
  SOFT_ENTER_CONTEXT();
  return SynchronizeContext(*Current());
}

long softCudaLive() {
  if (!Machine::started()) return 0;
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  size_t live = all.streams.size() + all.events.size() + all.graphs.size() + Memory::Get().Count();
  for (const auto& context : all.contexts) live += static_cast<size_t>(context->retained);
  return static_cast<long>(live) + all.modules;
}

}  // namespace nccltune::soft
