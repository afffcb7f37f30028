// SPDX-License-Identifier: Apache-2.0
//
// Cuts messages into chunks and assigns each chunk a slot of the buffer. Calls neither CUDA nor
// NCCL.
#ifndef NCCLTUNE_SENDRECV_VCCL_CHUNKS_H_
#define NCCLTUNE_SENDRECV_VCCL_CHUNKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv::vccl {

// Returns the chunk size for a message: `chunk_bytes`, but at most a slot. If `chunk_bytes` is 0,
// returns the size in VCCL's table. The table divides a channel's buffer by a divisor and by the
// number of slots. The divisor is 1 from 32 MiB on, 2 from 16, 4 from 8, 8 from 4, 16 from 2, 32
// from 1 MiB, and 64 below.
uint64_t ChunkBytes(const VcclSettings& settings, uint64_t bytes);

struct BufferChunk {
  size_t channel = 0;
  uint64_t number = 0;     // number of the chunk on its channel, from 1
  DeviceAddress slot = 0;  // address in the buffer
  uint64_t offset = 0;     // offset in the message
  uint64_t bytes = 0;
};

// Numbers the chunks of a lane's messages, on one side.
class ChunkSequence {
 public:
  ChunkSequence(const VcclSettings& settings, DeviceAddress base)
      : settings_(settings), base_(base) {}

  // Returns the chunks of the next message, in the order of channel and offset.
  std::vector<BufferChunk> NextMessage(uint64_t bytes);

 private:
  VcclSettings settings_;
  DeviceAddress base_;
  std::array<uint64_t, kMaxChannels> numbers_ = {};
};

}  // namespace nccltune::sendrecv::vccl

#endif  // NCCLTUNE_SENDRECV_VCCL_CHUNKS_H_
