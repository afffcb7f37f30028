// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/cuda/mapped_chunks.h"

#include <array>

namespace nccltune::sendrecv {

bool MappedChunks::IsSupported() const {
  return api_.MemRetainAllocationHandle != nullptr &&
         api_.MemGetAllocationPropertiesFromHandle != nullptr &&
         api_.MemExportToShareableHandle != nullptr &&
         api_.MemImportFromShareableHandle != nullptr && api_.MemRelease != nullptr &&
         api_.MemAddressReserve != nullptr && api_.MemAddressFree != nullptr &&
         api_.MemMap != nullptr && api_.MemUnmap != nullptr && api_.MemSetAccess != nullptr;
}

std::optional<MappedChunk> MappedChunks::Find(DeviceAddress address) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  MappedChunk chunk;
  cu::Pointer base = 0;
  size_t bytes = 0;
  unsigned type = 0;
  unsigned long long id = 0;
  unsigned long long block = 0;
  const std::array<int, 6> attributes = {cu::kMemoryType,  cu::kDeviceOrdinal, cu::kMappingBase,
                                         cu::kMappingSize, cu::kBufferId,      cu::kMemoryBlockId};
  std::array<void*, 6> values = {&type, &chunk.device, &base, &bytes, &id, &block};
  const cu::Result result =
      api_.PointerGetAttributes(attributes.size(), attributes.data(), values.data(), address);
  if (result != cu::kSuccess || type != cu::kDeviceMemory || base == 0 || bytes == 0) return {};
  if (address < base || address >= base + bytes) return {};
  chunk.base = base;
  chunk.bytes = bytes;
  chunk.id = id;
  chunk.block = block;
  return chunk;
}

bool MappedChunks::IsShareable(const MappedChunk& chunk) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  cu::Memory memory = 0;
  // CUDA refuses memory of a pool, and memory from functions like cuMemAlloc.
  if (api_.MemRetainAllocationHandle(&memory, reinterpret_cast<void*>(chunk.base)) !=
      cu::kSuccess) {
    return false;
  }
  cu::MemoryProperties properties;
  const cu::Result result = api_.MemGetAllocationPropertiesFromHandle(&properties, memory);
  api_.MemRelease(memory);
  return result == cu::kSuccess && (properties.handle_types & cu::kPosixDescriptor) != 0;
}

Descriptor MappedChunks::Export(const MappedChunk& chunk) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  cu::Memory memory = 0;
  if (api_.MemRetainAllocationHandle(&memory, reinterpret_cast<void*>(chunk.base)) !=
      cu::kSuccess) {
    return {};
  }
  int number = -1;
  const cu::Result result =
      api_.MemExportToShareableHandle(&number, memory, cu::kPosixDescriptor, 0);
  api_.MemRelease(memory);
  Descriptor descriptor(result == cu::kSuccess ? number : -1);
  descriptor.CloseOnExec();
  return descriptor;
}

cu::Memory MappedChunks::Import(const Descriptor& descriptor) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  cu::Memory memory = 0;
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.fd()));
  const cu::Result result =
      api_.MemImportFromShareableHandle(&memory, shareable, cu::kPosixDescriptor);
  return result == cu::kSuccess ? memory : 0;
}

void MappedChunks::Release(cu::Memory memory) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  api_.MemRelease(memory);
}

DeviceAddress MappedChunks::Map(const std::vector<ChunkMemory>& chunks) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  uint64_t bytes = 0;
  for (const ChunkMemory& chunk : chunks) bytes += chunk.bytes;
  cu::Pointer base = 0;
  if (api_.MemAddressReserve(&base, bytes, 0, 0, 0) != cu::kSuccess) return 0;
  uint64_t mapped = 0;
  if (MapInto(base, chunks, &mapped)) return base;
  if (mapped != 0) api_.MemUnmap(base, mapped);
  api_.MemAddressFree(base, bytes);
  return 0;
}

bool MappedChunks::MapInto(DeviceAddress base, const std::vector<ChunkMemory>& chunks,
                           uint64_t* mapped) const {
  for (const ChunkMemory& chunk : chunks) {
    if (api_.MemMap(base + *mapped, chunk.bytes, 0, chunk.memory, 0) != cu::kSuccess) return false;
    *mapped += chunk.bytes;
  }
  const cu::MemoryAccess access = {.location = {.type = cu::kOnDevice, .id = driver_.device()},
                                   .flags = cu::kReadWrite};
  return api_.MemSetAccess(base, *mapped, &access, 1) == cu::kSuccess;
}

void MappedChunks::Unmap(DeviceAddress base, uint64_t bytes) const {
  const ScopedRelaxedContext in(api_, driver_.context());
  api_.MemUnmap(base, bytes);
  api_.MemAddressFree(base, bytes);
}

}  // namespace nccltune::sendrecv
