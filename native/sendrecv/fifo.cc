// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/fifo.h"

#include <algorithm>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Parts of channels begin at such bounds.
constexpr uint64_t kBound = 512;

constexpr uint64_t RoundedUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

uint64_t ChunkOf(const FifoSettings& settings, uint64_t bytes) {
  const uint64_t slot = settings.buffer / settings.steps;
  if (settings.chunk != 0) return std::min(settings.chunk, slot);
  uint64_t divisor = 1;
  for (uint64_t from = 32 * kMiB; divisor < 64 && bytes < from; from /= 2) divisor *= 2;
  return settings.buffer / divisor / settings.steps;
}

std::vector<Fifo::Chunk> Fifo::Take(uint64_t bytes) {
  const uint64_t most = std::max<uint64_t>(1, bytes / settings_.least);
  const uint64_t channels = std::min(settings_.channels, most);
  const uint64_t part = RoundedUp((bytes + channels - 1) / channels, kBound);
  const uint64_t chunk = ChunkOf(settings_, bytes);
  const uint64_t slot = settings_.buffer / settings_.steps;
  std::vector<Chunk> chunks;
  for (size_t channel = 0; channel < channels; ++channel) {
    const uint64_t end = std::min(bytes, (channel + 1) * part);
    for (uint64_t at = channel * part; at < end; at += chunk) {
      const uint64_t number = ++numbers_[channel];
      chunks.push_back({.channel = channel,
                        .number = number,
                        .at = base_ + channel * settings_.buffer + number % settings_.steps * slot,
                        .offset = at,
                        .bytes = std::min(chunk, end - at)});
    }
  }
  return chunks;
}

}  // namespace nccltune::sendrecv
