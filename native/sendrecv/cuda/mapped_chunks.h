// SPDX-License-Identifier: Apache-2.0
// Memory mapped with cuMemMap. It consists of adjacent chunks, and each chunk is shared with other
// processes as a file descriptor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/descriptor.h"
#include "sendrecv/cuda/cuda_driver.h"

namespace nccltune::sendrecv {

// The mapping of a chunk, as CUDA reports it.
struct MappedChunk {
  DeviceAddress base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;     // buffer id: identifies the mapping
  uint64_t block = 0;  // memory block id: identifies the memory behind the mapping
  int device = -1;

  DeviceAddress end() const { return base + bytes; }
  bool operator==(const MappedChunk&) const = default;
};

// Memory of an imported chunk, mapped or not.
struct ChunkMemory {
  cu::Memory memory = 0;
  uint64_t bytes = 0;
};

// CUDA's operations on chunks. An object is cheap to construct.
class MappedChunks {
 public:
  explicit MappedChunks(const CudaDriver& driver) : driver_(driver), api_(driver.api()) {}

  // Returns whether the driver has all needed functions.
  bool IsSupported() const;

  // Returns the chunk at an address of GPU memory. Returns nothing for other memory, or if the
  // driver does not report the chunk.
  std::optional<MappedChunk> Find(DeviceAddress address) const;
  // Returns whether the chunk was created for sharing by file descriptor. Returns false as well if
  // CUDA does not report it.
  bool IsShareable(const MappedChunk& chunk) const;
  // Returns a file descriptor for the chunk, or an empty descriptor if CUDA refuses.
  Descriptor Export(const MappedChunk& chunk) const;

  // Returns the memory behind a file descriptor, or 0 if CUDA refuses. The caller still owns the
  // descriptor.
  cu::Memory Import(const Descriptor& descriptor) const;
  void Release(cu::Memory memory) const;
  // Maps the chunks at consecutive addresses, accessible to the driver's GPU. Returns the first
  // address. Returns 0 if CUDA refuses; then nothing stays mapped. The caller still owns the
  // chunks. The mapping stays valid after the caller has released the chunks.
  DeviceAddress Map(const std::vector<ChunkMemory>& chunks) const;
  void Unmap(DeviceAddress base, uint64_t bytes) const;

 private:
  bool MapInto(DeviceAddress base, const std::vector<ChunkMemory>& chunks, uint64_t* mapped) const;

  const CudaDriver& driver_;
  const cu::Api& api_;
};

}  // namespace nccltune::sendrecv
