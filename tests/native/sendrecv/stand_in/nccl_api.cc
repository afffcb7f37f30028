// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_api.h"

#include <utility>

#include "sendrecv/stand_in/cuda_options.h"

namespace nccltune::soft {
namespace {

constexpr int kVersion = 22809;

// Allocates memory that all GPUs can access and other processes can import.
CUresult AllocateShared(CUdeviceptr* pointer, size_t bytes) {
  CUmemAllocationProp prop = {};
  prop.type = 1;
  prop.requestedHandleTypes = 1;
  prop.location.type = 1;
  CUresult result = cuCtxGetDevice(&prop.location.id);
  size_t granularity = 1;
  if (result == kCudaSuccess) result = cuMemGetAllocationGranularity(&granularity, &prop, 0);
  bytes = (bytes + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  if (result == kCudaSuccess) result = cuMemCreate(&handle, bytes, &prop, 0);
  if (result == kCudaSuccess) result = cuMemAddressReserve(pointer, bytes, granularity, 0, 0);
  if (result == kCudaSuccess) result = cuMemMap(*pointer, bytes, 0, handle, 0);
  if (result == kCudaSuccess) result = cuMemRelease(handle);
  int gpus = 0;
  if (result == kCudaSuccess) result = cuDeviceGetCount(&gpus);
  for (int gpu = 0; gpu < gpus && result == kCudaSuccess; ++gpu) {
    int can = gpu == prop.location.id ? 1 : 0;
    if (can == 0) cuDeviceCanAccessPeer(&can, gpu, prop.location.id);
    CUmemAccessDesc access = {.location = {.type = 1, .id = gpu}, .flags = 3};
    if (can != 0) result = cuMemSetAccess(*pointer, bytes, &access, 1);
  }
  return result;
}

}  // namespace

bool Refuses(const char* function) {
  static auto* const refusals = new Refusals("SOFT_NCCL_REFUSE");
  return refusals->Refuses(function);
}

std::shared_ptr<Comm> ReadyComm(const ncclComm* handle) {
  std::shared_ptr<Comm> comm = FindComm(handle);
  const bool ready = comm != nullptr && comm->ready && !comm->finalized;
  return ready && comm->error != kNcclInProgress ? comm : nullptr;
}

SOFT_NCCL(ncclGetVersion, (int* version)) {
  *version = kVersion;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommGetAsyncError, (ncclComm_t handle, ncclResult_t* error)) {
  SOFT_NCCL_ENTER();
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *error = comm->error;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommCount, (const ncclComm_t handle, int* ranks)) {
  SOFT_NCCL_ENTER();
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *ranks = comm->ranks;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommUserRank, (const ncclComm_t handle, int* rank)) {
  SOFT_NCCL_ENTER();
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *rank = comm->rank;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommCuDevice, (const ncclComm_t handle, int* gpu)) {
  SOFT_NCCL_ENTER();
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *gpu = comm->gpu;
  return kNcclSuccess;
}

SOFT_NCCL(ncclMemAlloc, (void** pointer, size_t bytes)) {
  SOFT_NCCL_ENTER();
  CUdeviceptr address = 0;
  if (AllocateShared(&address, bytes) != kCudaSuccess) return kNcclUnhandledCudaError;
  *pointer = reinterpret_cast<void*>(address);
  return kNcclSuccess;
}

SOFT_NCCL(ncclMemFree, (void* pointer)) {
  SOFT_NCCL_ENTER();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (cuMemGetAddressRange_v2(&base, &bytes, AddressOf(pointer)) != kCudaSuccess ||
      cuCtxSynchronize() != kCudaSuccess || cuMemUnmap(base, bytes) != kCudaSuccess ||
      cuMemAddressFree(base, bytes) != kCudaSuccess) {
    return kNcclUnhandledCudaError;
  }
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommRegister,
          (const ncclComm_t comm, void* buffer, size_t /*bytes*/, void** handle)) {
  SOFT_NCCL_ENTER();
  if (ReadyComm(comm) == nullptr || buffer == nullptr) return kNcclInvalidArgument;
  *handle = buffer;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommDeregister, (const ncclComm_t comm, void* /*handle*/)) {
  SOFT_NCCL_ENTER();
  return FindComm(comm) == nullptr ? kNcclInvalidArgument : kNcclSuccess;
}

const char* acts::ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  const bool known = result >= 0 && result < static_cast<int>(std::size(kTexts));
  return known ? kTexts[result] : "unknown result code";
}

const char* acts::ncclGetLastError(ncclComm_t /*comm*/) { return LastFailure(); }

}  // namespace nccltune::soft
