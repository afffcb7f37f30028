// SPDX-License-Identifier: Apache-2.0
//
// GPU memory, pinned host memory, and the attributes of pointers.
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <utility>

#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"

namespace nccltune::soft {
namespace {

CUresult Allocate(CUdeviceptr* pointer, size_t bytes, Context& context, Kind kind) {
  if (bytes == 0) return kInvalidValue;
  Mapping mapping;
  mapping.bytes = bytes;
  mapping.backing = Backing::Create(context.gpu, bytes);
  mapping.kind = kind;
  mapping.gpu = context.gpu;
  if (mapping.backing == nullptr) return kOutOfMemory;
  *pointer = Memory::Get().Add(std::move(mapping));
  return *pointer == 0 ? kOutOfMemory : kCudaSuccess;
}

size_t RoundUp(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

template <typename Value>
CUresult Set(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);
  return kCudaSuccess;
}

CUresult HostAttribute(void* data, int attribute, CUdeviceptr pointer, const HostRange& host) {
  switch (attribute) {
    case kPointerContext:
      return Set(data, HandleOf(Machine::Get().contexts[static_cast<size_t>(host.gpu)].get()));
    case kPointerMemoryType:
      return Set(data, kMemoryHost);
    case kPointerDevicePointer:
    case kPointerHostPointer:
      return Set(data, pointer);
    case kPointerBufferId:
      return Set(data, static_cast<unsigned long long>(host.id));
    case kPointerDeviceOrdinal:
      return Set(data, host.gpu);
    case kPointerRangeStart:
      return Set(data, static_cast<CUdeviceptr>(host.start));
    case kPointerRangeSize:
      return Set(data, host.bytes);
    case kPointerMapped:
      return Set(data, 1U);
    case kPointerIsManaged:
    case kPointerLegacyIpcCapable:
      return Set(data, 0U);
    case kPointerMempoolHandle:
      return Set(data, static_cast<void*>(nullptr));
    default:
      return kInvalidValue;
  }
}

CUresult DeviceAttribute(void* data, int attribute, CUdeviceptr pointer, const Mapping& mapping) {
  static int pool;
  const bool ipc = mapping.kind == Kind::kLegacy && !Machine::Get().options.Lacks("ipc");
  switch (attribute) {
    case kPointerContext:
      // Memory of cuMemCreate belongs to no context.
      return Set(data,
                 mapping.kind == Kind::kVirtual
                     ? nullptr
                     : HandleOf(Machine::Get().contexts[static_cast<size_t>(mapping.gpu)].get()));
    case kPointerMemoryType:
      return Set(data, kMemoryDevice);
    case kPointerDevicePointer:
      return Set(data, pointer);
    case kPointerBufferId:
      return Set(data, static_cast<unsigned long long>(mapping.id));
    case kPointerMemoryBlockId:
      return Set(data, static_cast<unsigned long long>(mapping.backing->inode()));
    case kPointerDeviceOrdinal:
      return Set(data, mapping.kind == Kind::kVirtual ? mapping.backing->gpu() : mapping.gpu);
    case kPointerRangeStart:
    case kPointerMappingBase:
      return Set(data, mapping.start);
    case kPointerRangeSize:
    case kPointerMappingSize:
      return Set(data, mapping.bytes);
    case kPointerMapped:
      return Set(data, 1U);
    case kPointerIsManaged:
      return Set(data, 0U);
    case kPointerLegacyIpcCapable:
      return Set(data, ipc ? 1U : 0U);
    case kPointerAllowedHandleTypes:
      return Set(data, mapping.kind == Kind::kVirtual ? uint64_t{1} : uint64_t{0});
    case kPointerAccessFlags:
      return Set(data, 3U);
    case kPointerMempoolHandle:
      return Set(data, mapping.kind == Kind::kPool ? static_cast<void*>(&pool) : nullptr);
    default:
      return kInvalidValue;
  }
}

CUresult Attribute(void* data, int attribute, CUdeviceptr pointer) {
  if (const std::optional<Mapping> mapping = Memory::Get().Find(pointer)) {
    return DeviceAttribute(data, attribute, pointer, *mapping);
  }
  if (const std::optional<HostRange> host = Memory::Get().FindHost(pointer)) {
    return HostAttribute(data, attribute, pointer, *host);
  }
  return kInvalidValue;
}

// The values of cuPointerGetAttributes for memory that CUDA does not know.
void Unknown(void* data, int attribute) {
  switch (attribute) {
    case kPointerMemoryType:
    case kPointerIsManaged:
    case kPointerMapped:
    case kPointerLegacyIpcCapable:
    case kPointerAccessFlags:
      Set(data, 0U);
      break;
    case kPointerDeviceOrdinal:
      Set(data, -2);
      break;
    default:
      Set(data, uint64_t{0});
  }
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  SOFT_ENTER_CONTEXT();
  *total = size_t{16} << 30;
  *free = *total / 2;
  return kCudaSuccess;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  SOFT_ENTER_CONTEXT();
  return Allocate(pointer, bytes, *Current(), Kind::kLegacy);
}

// Waits for all work of the GPU, as CUDA does.
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  SOFT_ENTER();
  if (pointer == 0) return kCudaSuccess;
  const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
  if (!mapping || mapping->start != pointer) return kInvalidValue;
  Context& context = *Machine::Get().contexts[static_cast<size_t>(mapping->gpu)];
  SynchronizeContext(context);
  if (Memory::Get().Remove(pointer, Kind::kLegacy) || Memory::Get().Remove(pointer, Kind::kPool)) {
    return context.error;
  }
  return kInvalidValue;
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
  SOFT_ENTER_CONTEXT();
  Machine& all = Machine::Get();
  std::shared_ptr<SoftStream> stream;
  {
    const std::scoped_lock lock(all.mutex);
    stream = all.Find(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (stream->graph != nullptr) return kStreamCaptureUnsupported;
  }
  return Allocate(pointer, bytes, stream->context(), Kind::kPool);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  SOFT_ENTER_CONTEXT();
  const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
  if (!mapping || mapping->start != pointer || mapping->kind != Kind::kPool) return kInvalidValue;
  return EnqueueIn(stream, {.after = {}, .ready = nullptr, .run = [pointer] {
                              Memory::Get().Remove(pointer, Kind::kPool);
                            }});
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned /*flags*/) {
  SOFT_ENTER_CONTEXT();
  if (bytes == 0) return kInvalidValue;
  void* const data =
      mmap(nullptr, RoundUp(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return kOutOfMemory;
  HostRange range;
  range.start = reinterpret_cast<uintptr_t>(data);
  range.bytes = bytes;
  range.gpu = Current()->gpu;
  *pointer = data;
  return Memory::Get().AddHost(range);
}

CUresult cuMemFreeHost(void* pointer) {
  SOFT_ENTER();
  if (pointer == nullptr) return kCudaSuccess;
  const auto start = reinterpret_cast<uintptr_t>(pointer);
  const std::optional<HostRange> range = Memory::Get().FindHost(start);
  if (!range || range->start != start || range->registered) return kInvalidValue;
  SynchronizeContext(*Machine::Get().contexts[static_cast<size_t>(range->gpu)]);
  const CUresult result = Memory::Get().RemoveHost(start, false);
  if (result == kCudaSuccess) munmap(pointer, RoundUp(range->bytes));
  return result;
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned /*flags*/) {
  SOFT_ENTER_CONTEXT();
  if (Machine::Get().options.Lacks("hostregister")) return kNotSupported;
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  HostRange range;
  range.start = reinterpret_cast<uintptr_t>(pointer);
  range.bytes = bytes;
  range.registered = true;
  range.gpu = Current()->gpu;
  return Memory::Get().AddHost(range);
}

CUresult cuMemHostUnregister(void* pointer) {
  SOFT_ENTER();
  return Memory::Get().RemoveHost(reinterpret_cast<uintptr_t>(pointer), true);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* pointer, unsigned flags) {
  SOFT_ENTER_CONTEXT();
  if (flags != 0) return kInvalidValue;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (!Memory::Get().FindHost(address)) return kInvalidValue;
  *device = address;
  return kCudaSuccess;
}

CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr pointer) {
  SOFT_ENTER();
  return Attribute(data, attribute, pointer);
}

CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** data, CUdeviceptr pointer) {
  SOFT_ENTER();
  for (unsigned i = 0; i < count; ++i) {
    if (Attribute(data[i], attributes[i], pointer) != kCudaSuccess) Unknown(data[i], attributes[i]);
  }
  return kCudaSuccess;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  SOFT_ENTER();
  const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
  if (!mapping) return kNotFound;
  if (base != nullptr) *base = mapping->start;
  if (bytes != nullptr) *bytes = mapping->bytes;
  return kCudaSuccess;
}

}  // namespace nccltune::soft
