// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_LITTLE_ENDIAN_H_
#define NCCLTUNE_BENCH_LITTLE_ENDIAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune::bench {

inline void AppendUint32(std::string* bytes, uint32_t number) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>(static_cast<unsigned char>(number >> shift)));
  }
}

// `bytes` holds at least four from `offset` on.
inline uint32_t Uint32At(std::string_view bytes, size_t offset) {
  uint32_t number = 0;
  for (unsigned i = 0; i < 4; ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
  }
  return number;
}

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_LITTLE_ENDIAN_H_
