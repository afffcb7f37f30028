// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: memory handles, address ranges and mappings.
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

constexpr int kPosixFd = 1;
constexpr int kOnDevice = 1;
constexpr int kPinned = 1;

struct Allocation {
  std::shared_ptr<Backing> backing;
  CUmemAllocationProp prop = {};
  int references = 1;
};

struct Handles {
  std::mutex mutex;
  std::map<uint64_t, Allocation> by_number;
  // Mapped memory outlives its handle, and a new handle can be retained from it. Therefore its
  // properties are kept.
  std::map<ino_t, CUmemAllocationProp> props;
  uint64_t last = 0x7000;

  static Handles& Get() {
    static auto* const handles = new Handles;
    return *handles;
  }

  uint64_t Add(Allocation allocation) {
    props[allocation.backing->inode()] = allocation.prop;
    by_number[++last] = std::move(allocation);
    return last;
  }
};

bool Valid(const CUmemAllocationProp& prop) {
  return prop.type == kPinned && prop.location.type == kOnDevice && prop.location.id >= 0 &&
         prop.location.id < Machine::Get().options.gpus;
}

constexpr uint64_t kIpcMagic = 0x736f'6674'2069'7063;

struct Handle {
  uint64_t magic = kIpcMagic;
  int process = 0;
  int fd = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle));

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* prop,
                                       int /*option*/) {
  SOFT_ENTER();
  if (!Valid(*prop)) return kInvalidValue;
  *bytes = kGranularity;
  return kCudaSuccess;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  SOFT_ENTER();
  if (flags != 0 || !Valid(*prop) || bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  // Fabric handles are not supported.
  if ((prop->requestedHandleTypes & ~kPosixFd) != 0) return kNotSupported;
  Allocation allocation;
  allocation.backing = Backing::Create(prop->location.id, bytes);
  allocation.prop = *prop;
  if (allocation.backing == nullptr) return kOutOfMemory;
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  *handle = handles.Add(std::move(allocation));
  return kCudaSuccess;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SOFT_ENTER();
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  const auto found = handles.by_number.find(handle);
  if (found == handles.by_number.end()) return kInvalidValue;
  if (--found->second.references == 0) handles.by_number.erase(found);
  return kCudaSuccess;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
  SOFT_ENTER();
  if (flags != 0 || bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  *pointer = Memory::Get().Reserve(bytes, alignment, wanted);
  return *pointer == 0 ? kOutOfMemory : kCudaSuccess;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  SOFT_ENTER();
  return Memory::Get().FreeReservation(pointer, bytes) ? kCudaSuccess : kInvalidValue;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  SOFT_ENTER();
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  const auto found = handles.by_number.find(handle);
  if (found == handles.by_number.end() || flags != 0 || offset != 0) return kInvalidValue;
  Mapping mapping;
  mapping.start = pointer;
  mapping.bytes = bytes;
  mapping.backing = found->second.backing;
  mapping.kind = Kind::kVirtual;
  mapping.gpu = mapping.backing->gpu();
  mapping.handle = handle;
  if (pointer % kGranularity != 0 || bytes % kGranularity != 0 || bytes == 0 ||
      bytes > mapping.backing->bytes()) {
    return kInvalidValue;
  }
  return Memory::Get().MapInto(std::move(mapping)) ? kCudaSuccess : kInvalidValue;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  SOFT_ENTER();
  return Memory::Get().Unmap(pointer, bytes) ? kCudaSuccess : kInvalidValue;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  SOFT_ENTER();
  const CudaOptions& options = Machine::Get().options;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& each = access[i];
    if (each.location.type != kOnDevice || each.location.id < 0 ||
        each.location.id >= options.gpus) {
      return kInvalidValue;
    }
    const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
    if (!mapping) return kInvalidValue;
    if (options.Lacks("peer") && mapping->backing->gpu() != each.location.id) {
      return kPeerAccessUnsupported;
    }
    if (!Memory::Get().SetAccess(pointer, bytes, each.location.id, each.flags)) {
      return kInvalidValue;
    }
  }
  return kCudaSuccess;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
  SOFT_ENTER();
  if (type != kPosixFd || flags != 0) return kInvalidValue;
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  const auto found = handles.by_number.find(handle);
  if (found == handles.by_number.end() ||
      (found->second.prop.requestedHandleTypes & kPosixFd) == 0) {
    return kInvalidValue;
  }
  const int fd = fcntl(found->second.backing->fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kOutOfMemory;
  std::memcpy(out, &fd, sizeof fd);
  return kCudaSuccess;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        int type) {
  SOFT_ENTER();
  if (type != kPosixFd) return kInvalidValue;
  Allocation allocation;
  allocation.backing = Backing::Open(static_cast<int>(reinterpret_cast<intptr_t>(shareable)));
  if (allocation.backing == nullptr) return kInvalidValue;
  allocation.prop.type = kPinned;
  allocation.prop.requestedHandleTypes = kPosixFd;
  allocation.prop.location = {.type = kOnDevice, .id = allocation.backing->gpu()};
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  *handle = handles.Add(std::move(allocation));
  return kCudaSuccess;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  SOFT_ENTER();
  const std::optional<Mapping> mapping = Memory::Get().Find(reinterpret_cast<CUdeviceptr>(pointer));
  if (!mapping || mapping->kind != Kind::kVirtual) return kInvalidValue;
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  const auto found = handles.by_number.find(mapping->handle);
  if (found != handles.by_number.end()) {
    ++found->second.references;
    *handle = mapping->handle;
    return kCudaSuccess;
  }
  Allocation allocation;
  allocation.backing = mapping->backing;
  allocation.prop = handles.props[mapping->backing->inode()];
  *handle = handles.Add(std::move(allocation));
  return kCudaSuccess;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  SOFT_ENTER();
  Handles& handles = Handles::Get();
  const std::scoped_lock lock(handles.mutex);
  const auto found = handles.by_number.find(handle);
  if (found == handles.by_number.end()) return kInvalidValue;
  *prop = found->second.prop;
  return kCudaSuccess;
}

// Legacy IPC for memory of cuMemAlloc. The importing process finds the memory as an open file of
// its owner, through /proc.
// The handle is of the whole allocation, for any pointer into it.
CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
  SOFT_ENTER_CONTEXT();
  if (Machine::Get().options.Lacks("ipc")) return kNotSupported;
  const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
  if (!mapping || mapping->kind != Kind::kLegacy) return kInvalidValue;
  Handle handle;
  handle.process = getpid();
  handle.fd = mapping->backing->fd();
  handle.inode = mapping->backing->inode();
  handle.bytes = mapping->bytes;
  *out = {};
  std::memcpy(out->reserved, &handle, sizeof handle);
  return kCudaSuccess;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle in, unsigned flags) {
  SOFT_ENTER_CONTEXT();
  const CudaOptions& options = Machine::Get().options;
  if (options.Lacks("ipc")) return kNotSupported;
  Handle handle;
  std::memcpy(&handle, in.reserved, sizeof handle);
  if (handle.magic != kIpcMagic || flags != kIpcLazyEnablePeerAccess) return kInvalidValue;
  if (handle.process == getpid()) return kInvalidContext;
  const int gpu = Current()->gpu;
  // Two threads that open the same handle get one import.
  static auto* const opening = new std::mutex;
  const std::scoped_lock lock(*opening);
  if ((*pointer = Memory::Get().AddReference(handle.inode, gpu)) != 0) return kCudaSuccess;
  const int fd = OpenFileOf(handle.process, handle.fd, handle.inode);
  std::shared_ptr<Backing> backing = fd < 0 ? nullptr : Backing::Open(fd);
  if (fd >= 0) close(fd);
  if (backing == nullptr || backing->freed()) return kInvalidValue;
  if (backing->gpu() != gpu && options.Lacks("peer")) return kPeerAccessUnsupported;
  Mapping mapping;
  mapping.bytes = handle.bytes;
  mapping.backing = std::move(backing);
  mapping.kind = Kind::kImported;
  mapping.gpu = gpu;
  *pointer = Memory::Get().Add(std::move(mapping));
  return *pointer == 0 ? kOutOfMemory : kCudaSuccess;
}

// Waits for all streams, as CUDA does (driver 580).
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  SOFT_ENTER_CONTEXT();
  SynchronizeContext(*Current());
  return Memory::Get().DropReference(pointer) ? kCudaSuccess : kInvalidValue;
}

}  // namespace nccltune::soft
