// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/chunks.h"

#include <array>
#include <utility>

namespace nccltune::sendrecv {

bool Chunks::possible() const {
  return api_.MemRetainAllocationHandle != nullptr &&
         api_.MemGetAllocationPropertiesFromHandle != nullptr &&
         api_.MemExportToShareableHandle != nullptr &&
         api_.MemImportFromShareableHandle != nullptr && api_.MemRelease != nullptr &&
         api_.MemAddressReserve != nullptr && api_.MemAddressFree != nullptr &&
         api_.MemMap != nullptr && api_.MemUnmap != nullptr && api_.MemSetAccess != nullptr;
}

std::optional<Chunk> Chunks::Find(DeviceAddress address) const {
  const InContext in(api_, driver_.context());
  Chunk chunk;
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

bool Chunks::IsShareable(const Chunk& chunk) const {
  const InContext in(api_, driver_.context());
  cu::Memory memory = 0;
  // Of a pool, or of one of the older functions: refused.
  if (api_.MemRetainAllocationHandle(&memory, reinterpret_cast<void*>(chunk.base)) !=
      cu::kSuccess) {
    return false;
  }
  cu::MemoryProperties properties;
  const cu::Result result = api_.MemGetAllocationPropertiesFromHandle(&properties, memory);
  api_.MemRelease(memory);
  return result == cu::kSuccess && (properties.handle_types & cu::kPosixDescriptor) != 0;
}

Descriptor Chunks::Export(const Chunk& chunk) const {
  const InContext in(api_, driver_.context());
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

cu::Memory Chunks::Import(const Descriptor& descriptor) const {
  const InContext in(api_, driver_.context());
  cu::Memory memory = 0;
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.number()));
  const cu::Result result =
      api_.MemImportFromShareableHandle(&memory, shareable, cu::kPosixDescriptor);
  return result == cu::kSuccess ? memory : 0;
}

void Chunks::Release(cu::Memory memory) const {
  const InContext in(api_, driver_.context());
  api_.MemRelease(memory);
}

DeviceAddress Chunks::Map(const std::vector<ChunkMemory>& parts) const {
  const InContext in(api_, driver_.context());
  uint64_t bytes = 0;
  for (const ChunkMemory& part : parts) bytes += part.bytes;
  cu::Pointer base = 0;
  if (api_.MemAddressReserve(&base, bytes, 0, 0, 0) != cu::kSuccess) return 0;
  uint64_t mapped = 0;
  if (MapInto(base, parts, &mapped)) return base;
  if (mapped != 0) api_.MemUnmap(base, mapped);
  api_.MemAddressFree(base, bytes);
  return 0;
}

bool Chunks::MapInto(DeviceAddress base, const std::vector<ChunkMemory>& parts,
                     uint64_t* mapped) const {
  for (const ChunkMemory& part : parts) {
    if (api_.MemMap(base + *mapped, part.bytes, 0, part.memory, 0) != cu::kSuccess) return false;
    *mapped += part.bytes;
  }
  const cu::MemoryAccess access = {.location = {.type = cu::kOnDevice, .id = driver_.device()},
                                   .flags = cu::kReadWrite};
  return api_.MemSetAccess(base, *mapped, &access, 1) == cu::kSuccess;
}

void Chunks::Unmap(DeviceAddress base, uint64_t bytes) const {
  const InContext in(api_, driver_.context());
  api_.MemUnmap(base, bytes);
  api_.MemAddressFree(base, bytes);
}

}  // namespace nccltune::sendrecv
