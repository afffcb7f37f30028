// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: memory handles, address ranges and mappings.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"

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
  if (Machine::Get().options.Lacks("vmm")) return kNotSupported;
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
  if (Machine::Get().options.Lacks("vmm")) return kNotSupported;
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
  if (Machine::Get().options.Lacks("vmm")) return kNotSupported;
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

}  // namespace nccltune::soft
