// SPDX-License-Identifier: Apache-2.0
//
// Decides which chunk sizes are safe to return. NCCL limits a chunk to the protocol's buffer and
// rounds it down to the protocol's grain. NCCL checks nothing else.
#ifndef NCCLTUNE_TUNER_SAFE_CHUNK_H_
#define NCCLTUNE_TUNER_SAFE_CHUNK_H_

#include <array>
#include <cstddef>

#include "abi/tuner_types.h"

namespace nccltune::tuner {

// NCCL rounds a chunk down to a multiple of this size (ncclProtoGrainSize, 2.30). A smaller chunk
// becomes 0.
inline constexpr std::array<size_t, abi::kNumProtocols> kGrainBytes = {16, 1920, 512};

// NCCL checks a chunk against the protocol's ordinary buffer only. NVLS and CollNet have their own
// buffers: NCCL's proposal fits them, but a larger chunk may overrun them.
inline bool MayRaiseChunk(int algorithm) {
  return algorithm == abi::kTree || algorithm == abi::kRing || algorithm == abi::kPat;
}

inline bool IsSafeChunk(size_t wanted, size_t proposed, int algorithm, int protocol) {
  if (protocol < 0 || protocol >= abi::kNumProtocols) return false;
  if (wanted < kGrainBytes[static_cast<size_t>(protocol)]) return false;
  return wanted <= proposed || MayRaiseChunk(algorithm);
}

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_SAFE_CHUNK_H_
