// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_RANDOM_BYTES_H_
#define NCCLTUNE_COMMON_RANDOM_BYTES_H_

#include <cstddef>
#include <cstdint>

namespace nccltune {

// Fills `data` with `bytes` random bytes. Returns false if that fails. The bytes come from
// getrandom(2), or from /dev/urandom if a sandbox forbids getrandom. std::random_device is not
// used: it needs arc4random, which is new in glibc 2.36.
bool RandomBytes(void* data, size_t bytes);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_RANDOM_BYTES_H_
