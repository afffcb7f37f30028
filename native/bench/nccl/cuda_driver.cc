// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/cuda_driver.h"

#include "bench/nccl/opened_library.h"

namespace nccltune::bench {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kHint =
    "start it on a machine with NVIDIA GPUs and their driver, or try a recording: --replay STUDY";

bool FindAll(const OpenedLibrary& library, cuda::Functions* f, std::string* missing) {
#define NCCLTUNE_FIND(name) library.Find(#name, &f->name, missing)
  NCCLTUNE_FIND(cuInit);
  NCCLTUNE_FIND(cuDriverGetVersion);
  NCCLTUNE_FIND(cuGetErrorName);
  NCCLTUNE_FIND(cuGetErrorString);
  NCCLTUNE_FIND(cuDeviceGetCount);
  NCCLTUNE_FIND(cuDeviceGet);
  NCCLTUNE_FIND(cuDeviceGetName);
  NCCLTUNE_FIND(cuDeviceGetUuid);
  NCCLTUNE_FIND(cuDeviceGetAttribute);
  NCCLTUNE_FIND(cuDevicePrimaryCtxRetain);
  NCCLTUNE_FIND(cuDevicePrimaryCtxRelease_v2);
  NCCLTUNE_FIND(cuCtxSetCurrent);
  NCCLTUNE_FIND(cuMemGetInfo_v2);
  NCCLTUNE_FIND(cuMemAlloc_v2);
  NCCLTUNE_FIND(cuMemFree_v2);
  NCCLTUNE_FIND(cuMemHostAlloc);
  NCCLTUNE_FIND(cuMemFreeHost);
  NCCLTUNE_FIND(cuMemcpyHtoDAsync_v2);
  NCCLTUNE_FIND(cuMemcpyDtoHAsync_v2);
  NCCLTUNE_FIND(cuMemcpyDtoDAsync_v2);
  NCCLTUNE_FIND(cuMemsetD8Async);
  NCCLTUNE_FIND(cuStreamCreate);
  NCCLTUNE_FIND(cuStreamDestroy_v2);
  NCCLTUNE_FIND(cuStreamBeginCapture_v2);
  NCCLTUNE_FIND(cuStreamEndCapture);
  NCCLTUNE_FIND(cuEventCreate);
  NCCLTUNE_FIND(cuEventDestroy_v2);
  NCCLTUNE_FIND(cuEventRecord);
  NCCLTUNE_FIND(cuEventQuery);
  NCCLTUNE_FIND(cuEventElapsedTime);
  NCCLTUNE_FIND(cuGraphInstantiateWithFlags);
  NCCLTUNE_FIND(cuGraphLaunch);
  NCCLTUNE_FIND(cuGraphExecDestroy);
  NCCLTUNE_FIND(cuGraphDestroy);
  NCCLTUNE_FIND(cuModuleLoadData);
  NCCLTUNE_FIND(cuModuleUnload);
  NCCLTUNE_FIND(cuModuleGetFunction);
  NCCLTUNE_FIND(cuLaunchKernel);
#undef NCCLTUNE_FIND
  return missing->empty();
}

}  // namespace

std::unique_ptr<CudaDriver> CudaDriver::Open(OpenError* error) {
  error->kind = OpenError::Kind::kCannotRun;
  error->hint = kHint;
  std::string reason;
  const std::unique_ptr<OpenedLibrary> library = OpenedLibrary::Open(kLibrary, &reason);
  if (library == nullptr) {
    error->text = "no GPU: " + reason;
    return nullptr;
  }
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  if (!FindAll(*library, &driver->functions_, &reason)) {
    error->text = "the NVIDIA driver is too old: " + library->Path() + " has no " + reason +
                  " (needed is CUDA 11.4 or newer)";
    error->hint = "update the driver";
    return nullptr;
  }
  const cuda::Functions& f = driver->functions_;
  if (const cuda::Result result = f.cuInit(0); result != cuda::kSuccess) {
    error->text = "no GPU: the NVIDIA driver cannot be initialised: " + driver->Text(result);
    return nullptr;
  }
  int version = 0;
  if (f.cuDriverGetVersion(&version) == cuda::kSuccess && version > 0) {
    driver->version_ = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
  if (f.cuDeviceGetCount(&driver->devices_) != cuda::kSuccess || driver->devices_ < 1) {
    error->text = "no GPU: the NVIDIA driver shows none";
    return nullptr;
  }
  return driver;
}

std::string CudaDriver::Text(cuda::Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (functions_.cuGetErrorName(result, &name) != cuda::kSuccess || name == nullptr) {
    return "CUDA error " + std::to_string(result);
  }
  if (functions_.cuGetErrorString(result, &text) != cuda::kSuccess || text == nullptr) return name;
  return std::string(text) + " (" + name + ")";
}

std::optional<StepError> CudaDriver::Check(cuda::Result result, const char* what, int rank) const {
  if (result == cuda::kSuccess) return std::nullopt;
  return StepError{.kind = ErrorKind::kCuda,
                   .text = std::string("CUDA failed to ") + what + ": " + Text(result),
                   .rank = rank,
                   .fatal = true};
}

}  // namespace nccltune::bench
