// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_api.h"

#include <atomic>
#include <utility>

#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/nccl_group.h"

namespace nccltune::soft {
namespace {

constexpr int kVersion = 22809;

std::atomic<uint64_t> all_sends{0};
std::atomic<uint64_t> all_receives{0};

ncclResult_t Add(ncclComm_t handle, Task task, size_t count, ncclDataType_t type) {
  task.comm = ReadyComm(handle);
  if (task.comm == nullptr) {
    return FailGroup(Fail(kNcclInvalidArgument, "a communicator that is none, or not ready"));
  }
  if (task.comm->aborted) return FailGroup(kNcclInvalidUsage);
  if (const ncclResult_t error = task.comm->error) return FailGroup(error);
  if (SizeOf(type) == 0 || task.peer < 0 || task.peer >= task.comm->ranks) {
    return FailGroup(Fail(kNcclInvalidArgument, "no such peer or type"));
  }
  task.bytes = count * SizeOf(type);
  task.type = type;
  if (task.kind == TaskKind::kSend) all_sends.fetch_add(1);
  if (task.kind == TaskKind::kReceive) all_receives.fetch_add(1);
  return AddTask(std::move(task));
}

CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// All GPUs may use it, and other processes can import it.
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
  return refusals->Refuses(*function == 'p' ? function + 1 : function);
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

SOFT_NCCL(ncclGroupStart, ()) {
  SOFT_NCCL_ENTER();
  StartGroup();
  return kNcclSuccess;
}

SOFT_NCCL(ncclGroupEnd, ()) {
  SOFT_NCCL_ENTER();
  return EndGroup();
}

SOFT_NCCL(ncclSend, (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream)) {
  SOFT_NCCL_ENTER();
  Task task;
  task.kind = TaskKind::kSend;
  task.from = AddressOf(from);
  task.peer = peer;
  task.stream = stream;
  return Add(comm, std::move(task), count, type);
}

SOFT_NCCL(ncclRecv, (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream)) {
  SOFT_NCCL_ENTER();
  Task task;
  task.kind = TaskKind::kReceive;
  task.to = AddressOf(to);
  task.peer = peer;
  task.stream = stream;
  return Add(comm, std::move(task), count, type);
}

SOFT_NCCL(ncclAllReduce, (const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  if (op != kNcclSum || !CanAdd(type)) return FailGroup(kNcclInvalidArgument);
  Task task;
  task.kind = TaskKind::kAllReduce;
  task.from = AddressOf(from);
  task.to = AddressOf(to);
  task.stream = stream;
  return Add(comm, std::move(task), count, type);
}

SOFT_NCCL(ncclBroadcast, (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Task task;
  task.kind = TaskKind::kBroadcast;
  task.from = AddressOf(from);
  task.to = AddressOf(to);
  task.peer = root;
  task.stream = stream;
  return Add(comm, std::move(task), count, type);
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

const char* pncclGetErrorString(ncclResult_t result) {
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

const char* pncclGetLastError(ncclComm_t /*comm*/) { return LastFailure(); }

extern "C" {
const char* ncclGetErrorString(ncclResult_t result)
    __attribute__((weak, alias("pncclGetErrorString")));
const char* ncclGetLastError(ncclComm_t comm) __attribute__((weak, alias("pncclGetLastError")));
}

void softNcclCounts(uint64_t* sends, uint64_t* recvs) {
  *sends = all_sends.load();
  *recvs = all_receives.load();
}

}  // namespace nccltune::soft
