// SPDX-License-Identifier: Apache-2.0
#include "host/net/content.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace nccltune::host::net {
namespace {

// The finalizer of SplitMix64: each bit of the input affects half of the bits of the output.
uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

// Returns the eight bytes at position `index`. The function is cheap, so that it does not limit the
// transfer. The bytes differ at every position.
uint64_t WordAt(uint64_t key, uint64_t index) {
  const uint64_t word = key + index * 0x9E3779B97F4A7C15U;
  return word ^ (word >> 29U);
}

// The number of earlier and of later messages that a wrong message is compared with.
constexpr uint64_t kNeighbours = 64;

}  // namespace

uint64_t Sizes::Largest() const { return *std::max_element(list.begin(), list.end()); }

Content::Content(const Sizes& sizes, uint64_t seed, int connection, bool forward)
    : sizes_(sizes),
      key_(Mix(Mix(seed) + 2 * static_cast<uint64_t>(connection) + (forward ? 1 : 0))) {}

uint64_t Content::KeyOf(uint64_t sequence) const { return Mix(key_ ^ Mix(sequence)); }

uint64_t Content::SizeOf(uint64_t sequence) const {
  if (!sizes_.range) return sizes_.list[sequence % sizes_.list.size()];
  const uint64_t low = sizes_.list[0];
  const uint64_t span = sizes_.list[1] - low;
  const uint64_t random = Mix(KeyOf(sequence));
  if (span == 0) return low;
  const auto bits = static_cast<uint64_t>(std::bit_width(span));
  const uint64_t magnitude = (random >> 32U) % (bits + 1);
  const uint64_t below = magnitude == 64 ? ~uint64_t{0} : (uint64_t{1} << magnitude) - 1;
  return low + std::min(span, Mix(random) & below);
}

void Content::Fill(uint64_t sequence, void* data, uint64_t bytes) const {
  if (bytes == 0) return;
  const uint64_t key = KeyOf(sequence);
  auto* out = static_cast<unsigned char*>(data);
  uint64_t index = 0;
  for (; (index + 1) * 8 <= bytes; ++index) {
    const uint64_t word = WordAt(key, index);
    std::memcpy(out + index * 8, &word, 8);
  }
  const uint64_t word = WordAt(key, index);
  std::memcpy(out + index * 8, &word, bytes - index * 8);
}

bool Content::Matches(uint64_t sequence, const void* data, uint64_t bytes) const {
  if (bytes == 0) return true;
  const uint64_t key = KeyOf(sequence);
  const auto* in = static_cast<const unsigned char*>(data);
  uint64_t index = 0;
  for (; (index + 1) * 8 <= bytes; ++index) {
    uint64_t word = 0;
    std::memcpy(&word, in + index * 8, 8);
    if (word != WordAt(key, index)) return false;
  }
  const uint64_t word = WordAt(key, index);
  return std::memcmp(in + index * 8, &word, bytes - index * 8) == 0;
}

std::optional<std::string> Content::Difference(uint64_t sequence, const void* data,
                                               uint64_t bytes) const {
  if (Matches(sequence, data, bytes)) return std::nullopt;
  // Compare with other messages only if there are enough bytes; fewer would match by chance.
  if (bytes >= 8) {
    const uint64_t first = sequence < kNeighbours ? 0 : sequence - kNeighbours;
    for (uint64_t other = first; other <= sequence + kNeighbours; ++other) {
      if (other != sequence && Matches(other, data, bytes)) {
        return "carries the bytes of message " + std::to_string(other);
      }
    }
  }
  std::vector<unsigned char> expected(bytes);
  Fill(sequence, expected.data(), bytes);
  const auto* in = static_cast<const unsigned char*>(data);
  uint64_t wrong = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  for (uint64_t i = 0; i < bytes; ++i) {
    if (in[i] == expected[i]) continue;
    if (wrong++ == 0) first = i;
    last = i;
  }
  if (wrong == 1) return "byte " + std::to_string(first) + " is wrong";
  return std::to_string(wrong) + " bytes are wrong, from byte " + std::to_string(first) + " to " +
         std::to_string(last);
}

}  // namespace nccltune::host::net
