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

}  // namespace

uint64_t Sizes::Largest() const { return *std::max_element(list.begin(), list.end()); }

Content::Content(const Sizes& sizes, int connection, bool forward)
    : sizes_(sizes), key_(Mix(2 * static_cast<uint64_t>(connection) + (forward ? 1 : 0))) {}

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

std::optional<std::string> Content::Difference(uint64_t sequence, const void* data,
                                               uint64_t bytes) const {
  const uint64_t key = KeyOf(sequence);
  const auto* const in = static_cast<const unsigned char*>(data);
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t expected = WordAt(key, at / 8);
    uint64_t word = expected;
    std::memcpy(&word, in + at, std::min<uint64_t>(8, bytes - at));
    if (word != expected) return "the eight bytes from byte " + std::to_string(at) + " are wrong";
  }
  return std::nullopt;
}

}  // namespace nccltune::host::net
