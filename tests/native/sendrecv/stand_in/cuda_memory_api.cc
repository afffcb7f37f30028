// SPDX-License-Identifier: Apache-2.0
// GPU memory, pinned host memory, and the attributes of pointers.
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

size_t TotalMemory() { return static_cast<size_t>(NumberOf("SOFT_CUDA_MEMORY", 1LL << 30)); }

CUresult Allocate(CUdeviceptr* pointer, size_t bytes, Context& context, Kind kind) {
  if (bytes == 0) return kInvalidValue;
  if (Memory::Get().Allocated(context.gpu) + bytes > TotalMemory()) return kOutOfMemory;
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

// Writes an attribute of GPU memory or of pinned memory.
CUresult Attribute(void* data, int attribute, CUdeviceptr pointer) {
  const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
  const std::optional<HostRange> host = Memory::Get().FindHost(pointer);
  if (!mapping && !host) return kInvalidValue;
  const bool ipc =
      mapping && mapping->kind == Kind::kLegacy && !Machine::Get().options.Lacks("ipc");
  switch (attribute) {
    case kPointerMemoryType:
      return Set(data, mapping ? kMemoryDevice : kMemoryHost);
    case kPointerBufferId:
      return Set(data, static_cast<unsigned long long>(mapping ? mapping->id : host->id));
    case kPointerMemoryBlockId:
      if (!mapping) return kInvalidValue;
      return Set(data, static_cast<unsigned long long>(mapping->backing->inode()));
    case kPointerDeviceOrdinal:
      if (!mapping) return Set(data, host->gpu);
      return Set(data, mapping->kind == Kind::kVirtual ? mapping->backing->gpu() : mapping->gpu);
    case kPointerRangeStart:
    case kPointerMappingBase:
      return Set(data, mapping ? mapping->start : static_cast<CUdeviceptr>(host->start));
    case kPointerRangeSize:
    case kPointerMappingSize:
      return Set(data, mapping ? mapping->bytes : host->bytes);
    case kPointerIsManaged:
      return Set(data, 0U);
    case kPointerLegacyIpcCapable:
      return Set(data, ipc ? 1U : 0U);
    default:
      return kInvalidValue;
  }
}

// The values of cuPointerGetAttributes for memory that CUDA does not know.
void Unknown(void* data, int attribute) {
  switch (attribute) {
    case kPointerMemoryType:
    case kPointerIsManaged:
    case kPointerLegacyIpcCapable:
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
  *total = TotalMemory();
  *free = *total - std::min(*total, Memory::Get().Allocated(Current()->gpu));
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
