// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace nccltune {

// Returns the 64-bit FNV-1a hash of `bytes`. Equal hashes identify equal content: other nodes and
// the Python code compute the same hash. The hash does not protect against tampering.
constexpr uint64_t ContentHash(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

static_assert(ContentHash("") == 0xcbf29ce484222325U);
static_assert(ContentHash("foobar") == 0x85944171f73967e8U);

}  // namespace nccltune
