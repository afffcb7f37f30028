// SPDX-License-Identifier: Apache-2.0

#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/nccl_comm.h"
#include "standard.h"

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

static_assert(sizeof(Place) <= sizeof(ncclUniqueId));

bool IsBlocking(const ncclConfig_t* config) { return config == nullptr || config->blocking != 0; }

ncclResult_t Begin(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                   const ncclConfig_t* config) {
  *out = nullptr;
  if (std::getenv("SOFT_NCCL_INIT_FAILS") != nullptr) {
    return FailGroup(Fail(kNcclSystemError, "SOFT_NCCL_INIT_FAILS is set"));
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) return FailGroup(kNcclInvalidArgument);
  Place place;
  std::memcpy(&place, id.internal, sizeof place);
  const std::shared_ptr<Comm> comm = NewComm();
  if (comm == nullptr) return FailGroup(Fail(kNcclUnhandledCudaError, "no CUDA"));
  comm->blocking = IsBlocking(config);
  *out = HandleOf(comm);
  return AddJoin(comm, [comm, place, ranks, rank] { return Join(*comm, place, ranks, rank); });
}

ncclResult_t BeginByVote(const std::shared_ptr<Comm>& parent, Vote vote, ncclComm_t* out,
                         const ncclConfig_t* config) {
  *out = nullptr;
  const ScopedCommContext context(parent->context);
  const std::shared_ptr<Comm> comm = NewComm();
  if (comm == nullptr) return FailGroup(Fail(kNcclUnhandledCudaError, "no CUDA"));
  comm->blocking = config == nullptr ? parent->blocking : IsBlocking(config);
  const auto shared = std::make_shared<Vote>(std::move(vote));
  const auto begin = [parent, shared] {
    shared->round = ++(shared->shrink ? parent->shrinks : parent->splits);
  };
  const auto join = [parent, comm, out, shared] {
    const ncclResult_t result = JoinByVote(*parent, *shared, *comm);
    if (shared->color < 0) {
      ForgetComm(comm);
    } else {
      // Written only when the communicator is complete.
      __atomic_store_n(out, HandleOf(comm), __ATOMIC_RELEASE);
    }
    return result;
  };
  const ncclResult_t added = AddJoin(parent, join, begin);
  // The program polls the parent.
  return added == kNcclInProgress ? kNcclSuccess : added;
}

// Waits for work in progress and for work that is not enqueued yet.
ncclResult_t End(const std::shared_ptr<Comm>& comm) {
  for (Patience patience; comm->error == kNcclInProgress;) patience.Sleep();
  const CUresult result = cuEventSynchronize(comm->last);
  ForgetComm(comm);
  return result == kCudaSuccess || comm->aborted
             ? kNcclSuccess
             : Fail(kNcclUnhandledCudaError, "CUDA error " + std::to_string(result));
}

}  // namespace

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
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *error = comm->error;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommCount, (const ncclComm_t handle, int* ranks)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *ranks = comm->ranks;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommUserRank, (const ncclComm_t handle, int* rank)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *rank = comm->rank;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommCuDevice, (const ncclComm_t handle, int* gpu)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *gpu = comm->gpu;
  return kNcclSuccess;
}

SOFT_NCCL(ncclMemAlloc, (void** pointer, size_t bytes)) {
  CUdeviceptr address = 0;
  if (AllocateShared(&address, bytes) != kCudaSuccess) return kNcclUnhandledCudaError;
  *pointer = reinterpret_cast<void*>(address);
  return kNcclSuccess;
}

SOFT_NCCL(ncclMemFree, (void* pointer)) {
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
          (const ncclComm_t handle, void* buffer, size_t bytes, void** registration)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr || buffer == nullptr) return kNcclInvalidArgument;
  comm->registered[buffer] = bytes;
  *registration = buffer;
  ++live_objects;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommDeregister, (const ncclComm_t handle, void* registration)) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  comm->registered.erase(registration);
  --live_objects;
  return kNcclSuccess;
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

// How communicators are created and ended.
SOFT_NCCL(ncclGetUniqueId, (ncclUniqueId * id)) {
  Place place;
  if (!Segment::Create(place)) return Fail(kNcclSystemError, "no memory for a segment");
  *id = {};
  std::memcpy(id->internal, &place, sizeof place);
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank)) {
  return Begin(comm, ranks, id, rank, nullptr);
}

SOFT_NCCL(ncclCommInitRankConfig,
          (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  return Begin(comm, ranks, id, rank, config);
}

SOFT_NCCL(ncclCommInitRankScalable, (ncclComm_t * comm, int ranks, int rank, int ids,
                                     ncclUniqueId* id, ncclConfig_t* config)) {
  if (ids < 1 || ids > ranks) return FailGroup(kNcclInvalidArgument);
  return Begin(comm, ranks, id[0], rank, config);
}

SOFT_NCCL(ncclCommInitAll, (ncclComm_t * comms, int gpus, const int* list)) {
  Place place;
  if (gpus < 1) return kNcclInvalidArgument;
  if (!Segment::Create(place)) return Fail(kNcclSystemError, "no memory for a segment");
  ncclUniqueId id = {};
  std::memcpy(id.internal, &place, sizeof place);
  if (cuInit(0) != kCudaSuccess) return kNcclUnhandledCudaError;
  StartGroup();
  for (int rank = 0; rank < gpus; ++rank) {
    CUcontext context = nullptr;
    const int gpu = list == nullptr ? rank : list[rank];
    if (cuDevicePrimaryCtxRetain(&context, gpu) != kCudaSuccess) {
      FailGroup(Fail(kNcclUnhandledCudaError, "no such GPU"));
      break;
    }
    const ScopedCommContext in(context);
    Begin(&comms[rank], gpus, id, rank, nullptr);
  }
  return EndGroup();
}

SOFT_NCCL(ncclCommSplit,
          (ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* config)) {
  const std::shared_ptr<Comm> parent = ReadyComm(handle);
  if (parent == nullptr || color < kNcclNoColor) return FailGroup(kNcclInvalidArgument);
  Vote vote;
  for (int rank = 0; rank < parent->ranks; ++rank) vote.voters.push_back(rank);
  vote.color = color;
  vote.key = key;
  return BeginByVote(parent, std::move(vote), made, config);
}

SOFT_NCCL(ncclCommShrink, (ncclComm_t handle, int* excluded, int count, ncclComm_t* made,
                           ncclConfig_t* config, int flags)) {
  const std::shared_ptr<Comm> parent = ReadyComm(handle);
  if (parent == nullptr || excluded == nullptr || count < 1) return FailGroup(kNcclInvalidArgument);
  Vote vote;
  vote.shrink = true;
  for (int rank = 0; rank < parent->ranks; ++rank) {
    if (std::find(excluded, excluded + count, rank) == excluded + count) {
      vote.voters.push_back(rank);
    }
  }
  if (std::ranges::find(vote.voters, parent->rank) == vote.voters.end()) {
    return FailGroup(Fail(kNcclInvalidArgument, "an excluded rank must not call it"));
  }
  vote.key = parent->rank;
  if ((flags & kNcclShrinkAbort) != 0) {
    // Ends the parent's kernels. The parent itself stays until it is destroyed.
    parent->aborted = true;
    cuEventSynchronize(parent->last);
    parent->aborted = false;
  }
  return BeginByVote(parent, std::move(vote), made, config);
}

SOFT_NCCL(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id)) {
  if (ReadyComm(comm) == nullptr) return kNcclInvalidArgument;
  return acts::ncclGetUniqueId(id);
}

SOFT_NCCL(ncclCommGrow, (ncclComm_t handle, int ranks, const ncclUniqueId* id, int rank,
                         ncclComm_t* made, ncclConfig_t* config)) {
  if (handle == nullptr) {
    return id == nullptr ? FailGroup(kNcclInvalidArgument) : Begin(made, ranks, *id, rank, config);
  }
  *made = nullptr;
  const std::shared_ptr<Comm> parent = ReadyComm(handle);
  if (parent == nullptr || ranks <= parent->ranks || rank != -1) {
    return FailGroup(kNcclInvalidArgument);
  }
  const ScopedCommContext context(parent->context);
  const std::shared_ptr<Comm> comm = NewComm();
  if (comm == nullptr) return FailGroup(Fail(kNcclUnhandledCudaError, "no CUDA"));
  comm->blocking = config == nullptr ? parent->blocking : IsBlocking(config);
  Place place;
  if (id != nullptr) std::memcpy(&place, id->internal, sizeof place);
  const bool leads = id != nullptr;
  const auto round = std::make_shared<uint64_t>(0);
  const auto begin = [parent, round] { *round = ++parent->grows; };
  const auto join = [=] {
    const ncclResult_t result = JoinGrown(*parent, *round, leads ? &place : nullptr, ranks, *comm);
    __atomic_store_n(made, HandleOf(comm), __ATOMIC_RELEASE);
    return result;
  };
  const ncclResult_t added = AddJoin(parent, join, begin);
  return added == kNcclInProgress ? kNcclSuccess : added;
}

SOFT_NCCL(ncclCommRevoke, (ncclComm_t handle, int flags)) {
  if (handle == nullptr) return kNcclSuccess;
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr || flags != 0 || comm->finalized || comm->revoked.exchange(true)) {
    return kNcclInvalidArgument;
  }
  // Ends its kernels.
  comm->aborted = true;
  cuEventSynchronize(comm->last);
  comm->aborted = false;
  return kNcclSuccess;
}

SOFT_NCCL(ncclCommFinalize, (ncclComm_t handle)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr || comm->finalized.exchange(true)) return kNcclInvalidArgument;
  return cuEventSynchronize(comm->last) == kCudaSuccess ? kNcclSuccess : kNcclUnhandledCudaError;
}

SOFT_NCCL(ncclCommDestroy, (ncclComm_t handle)) {
  if (handle == nullptr) return kNcclSuccess;
  const std::shared_ptr<Comm> comm = FindComm(handle);
  return comm == nullptr ? kNcclInvalidArgument : End(comm);
}

SOFT_NCCL(ncclCommAbort, (ncclComm_t handle)) {
  if (handle == nullptr) return kNcclSuccess;
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  comm->aborted = true;
  return End(comm);
}

}  // namespace nccltune::soft
