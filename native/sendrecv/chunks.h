// SPDX-License-Identifier: Apache-2.0
//
// Memory that was mapped by hand (cuMemMap): chunks side by side in a range of addresses, each of
// which goes to other processes as a descriptor.
#ifndef NCCLTUNE_SENDRECV_CHUNKS_H_
#define NCCLTUNE_SENDRECV_CHUNKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "sendrecv/cuda_driver.h"
#include "sendrecv/descriptor.h"

namespace nccltune::sendrecv {

// A mapping as CUDA knows it.
struct Chunk {
  DeviceAddress base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;     // of the mapping
  uint64_t block = 0;  // of the memory behind it
  int device = -1;

  DeviceAddress end() const { return base + bytes; }
  bool operator==(const Chunk&) const = default;
};

// Memory of a handle, with or without a place.
struct ChunkMemory {
  cu::Memory memory = 0;
  uint64_t bytes = 0;
};

// What CUDA does with chunks. Cheap to make.
class Chunks {
 public:
  explicit Chunks(const CudaDriver& driver) : driver_(driver), api_(driver.api()) {}

  // The driver has all that is needed.
  bool possible() const;

  // Of any memory of a GPU; nothing for any other, or where the driver cannot tell.
  std::optional<Chunk> Find(DeviceAddress address) const;
  // It was made to be shared by descriptors.
  bool IsShareable(const Chunk& chunk) const;
  // None: CUDA refused.
  Descriptor Export(const Chunk& chunk) const;

  // 0: CUDA refused. The descriptor stays the caller's.
  cu::Memory Import(const Descriptor& descriptor) const;
  void Release(cu::Memory memory) const;
  // One behind the other, for the GPU of the driver. 0: CUDA refused, and nothing is left of it.
  // The parts stay the caller's; what is mapped lives without them.
  DeviceAddress Map(const std::vector<ChunkMemory>& parts) const;
  void Unmap(DeviceAddress base, uint64_t bytes) const;

 private:
  bool MapInto(DeviceAddress base, const std::vector<ChunkMemory>& parts, uint64_t* mapped) const;

  const CudaDriver& driver_;
  const cu::Api& api_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_CHUNKS_H_
