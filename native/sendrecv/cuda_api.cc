// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/cuda_api.h"

#include <dlfcn.h>

namespace nccltune::sendrecv::cu {
namespace {

struct Opened {
  Api api = {};
  std::string why;  // empty: all is there
};

// Reads functions one after another, and keeps the first that is missing.
class Reader {
 public:
  Reader(void* library, std::string* why) : library_(library), why_(why) {}

  template <typename Function>
  void Read(const char* name, Function* function) {
    MayRead(name, function);
    if (*function == nullptr && why_->empty()) {
      *why_ = std::string("libcuda.so.1 has no ") + name + "; CUDA 11.7 and later have";
    }
  }

  // Null: it is not there.
  template <typename Function>
  void MayRead(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
  }

 private:
  void* library_;
  std::string* why_;
};

Opened OpenOnce() {
  Opened opened;
  // Never closed: what it did for us lives as long as the process.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    opened.why = dlerror();
    return opened;
  }
  Api& api = opened.api;
  Reader reader(library, &opened.why);
  reader.Read("cuInit", &api.Init);
  reader.Read("cuDeviceGet", &api.DeviceGet);
  reader.Read("cuDeviceGetCount", &api.DeviceGetCount);
  reader.Read("cuDeviceGetAttribute", &api.DeviceGetAttribute);
  reader.Read("cuDeviceGetUuid", &api.DeviceGetUuid);
  reader.Read("cuDeviceCanAccessPeer", &api.DeviceCanAccessPeer);
  reader.Read("cuDevicePrimaryCtxRetain", &api.DevicePrimaryCtxRetain);
  reader.Read("cuCtxGetCurrent", &api.CtxGetCurrent);
  reader.Read("cuCtxPushCurrent_v2", &api.CtxPushCurrent);
  reader.Read("cuCtxPopCurrent_v2", &api.CtxPopCurrent);
  reader.Read("cuCtxGetDevice", &api.CtxGetDevice);
  reader.Read("cuCtxEnablePeerAccess", &api.CtxEnablePeerAccess);
  reader.Read("cuStreamCreate", &api.StreamCreate);
  reader.Read("cuStreamDestroy_v2", &api.StreamDestroy);
  reader.Read("cuStreamQuery", &api.StreamQuery);
  reader.Read("cuStreamIsCapturing", &api.StreamIsCapturing);
  reader.Read("cuThreadExchangeStreamCaptureMode", &api.ThreadExchangeStreamCaptureMode);
  reader.Read("cuStreamWaitEvent", &api.StreamWaitEvent);
  reader.Read("cuStreamWaitValue32_v2", &api.StreamWaitValue32);
  reader.Read("cuStreamWriteValue32_v2", &api.StreamWriteValue32);
  reader.Read("cuEventCreate", &api.EventCreate);
  reader.Read("cuEventDestroy_v2", &api.EventDestroy);
  reader.Read("cuEventRecord", &api.EventRecord);
  reader.Read("cuEventQuery", &api.EventQuery);
  reader.Read("cuMemcpyDtoDAsync_v2", &api.MemcpyDtoDAsync);
  reader.Read("cuMemAlloc_v2", &api.MemAlloc);
  reader.Read("cuMemFree_v2", &api.MemFree);
  reader.Read("cuMemcpyDtoHAsync_v2", &api.MemcpyDtoHAsync);
  reader.Read("cuLaunchHostFunc", &api.LaunchHostFunc);
  reader.Read("cuMemHostAlloc", &api.MemHostAlloc);
  reader.Read("cuMemFreeHost", &api.MemFreeHost);
  reader.Read("cuMemHostRegister_v2", &api.MemHostRegister);
  reader.Read("cuMemHostUnregister", &api.MemHostUnregister);
  reader.Read("cuPointerGetAttributes", &api.PointerGetAttributes);
  reader.Read("cuIpcGetMemHandle", &api.IpcGetMemHandle);
  reader.Read("cuIpcOpenMemHandle_v2", &api.IpcOpenMemHandle);
  reader.Read("cuIpcCloseMemHandle", &api.IpcCloseMemHandle);
  reader.Read("cuGetErrorName", &api.GetErrorName);
  reader.MayRead("cuCtxRecordEvent", &api.CtxRecordEvent);
  reader.MayRead("cuMemRetainAllocationHandle", &api.MemRetainAllocationHandle);
  reader.MayRead("cuMemGetAllocationPropertiesFromHandle",
                 &api.MemGetAllocationPropertiesFromHandle);
  reader.MayRead("cuMemExportToShareableHandle", &api.MemExportToShareableHandle);
  reader.MayRead("cuMemImportFromShareableHandle", &api.MemImportFromShareableHandle);
  reader.MayRead("cuMemRelease", &api.MemRelease);
  reader.MayRead("cuMemAddressReserve", &api.MemAddressReserve);
  reader.MayRead("cuMemAddressFree", &api.MemAddressFree);
  reader.MayRead("cuMemMap", &api.MemMap);
  reader.MayRead("cuMemUnmap", &api.MemUnmap);
  reader.MayRead("cuMemSetAccess", &api.MemSetAccess);
  return opened;
}

}  // namespace

const Api* Open(std::string* why) {
  static const Opened opened = OpenOnce();
  *why = opened.why;
  return opened.why.empty() ? &opened.api : nullptr;
}

std::string NameOf(const Api& api, Result result) {
  const char* name = nullptr;
  if (api.GetErrorName(result, &name) == kSuccess && name != nullptr) return name;
  return "CUDA error " + std::to_string(result);
}

}  // namespace nccltune::sendrecv::cu
