// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/vccl/chunks.h"

#include <algorithm>

namespace nccltune::sendrecv::vccl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Each channel's part of a message begins at a multiple of this.
constexpr uint64_t kAlignment = 512;

constexpr uint64_t RoundedUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

uint64_t ChunkBytes(const VcclSettings& settings, uint64_t bytes) {
  const uint64_t slot = settings.channel_bytes / settings.slots;
  if (settings.chunk_bytes != 0) return std::min(settings.chunk_bytes, slot);
  uint64_t divisor = 1;
  for (uint64_t from = 32 * kMiB; divisor < 64 && bytes < from; from /= 2) divisor *= 2;
  return settings.channel_bytes / divisor / settings.slots;
}

std::vector<BufferChunk> ChunkSequence::NextMessage(uint64_t bytes) {
  const uint64_t most = std::max<uint64_t>(1, bytes / settings_.min_channel_bytes);
  const uint64_t channels = std::min(settings_.channels, most);
  const uint64_t part = RoundedUp((bytes + channels - 1) / channels, kAlignment);
  const uint64_t chunk = ChunkBytes(settings_, bytes);
  const uint64_t slot = settings_.channel_bytes / settings_.slots;
  std::vector<BufferChunk> chunks;
  for (size_t channel = 0; channel < channels; ++channel) {
    const uint64_t end = std::min(bytes, (channel + 1) * part);
    for (uint64_t offset = channel * part; offset < end; offset += chunk) {
      const uint64_t number = ++numbers_[channel];
      chunks.push_back(
          {.channel = channel,
           .number = number,
           .slot = base_ + channel * settings_.channel_bytes + number % settings_.slots * slot,
           .offset = offset,
           .bytes = std::min(chunk, end - offset)});
    }
  }
  return chunks;
}

}  // namespace nccltune::sendrecv::vccl
