// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_CONTENT_HASH_H_
#define NCCLTUNE_COMMON_CONTENT_HASH_H_

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

#endif  // NCCLTUNE_COMMON_CONTENT_HASH_H_
