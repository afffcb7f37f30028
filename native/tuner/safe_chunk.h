// SPDX-License-Identifier: Apache-2.0
//
// Which chunk sizes NCCL can be told. It cuts an answer to the protocol's buffer and rounds it down
// to the protocol's grain, and checks nothing else.
#ifndef NCCLTUNE_TUNER_SAFE_CHUNK_H_
#define NCCLTUNE_TUNER_SAFE_CHUNK_H_

#include <array>
#include <cstddef>

#include "abi/tuner_types.h"

namespace nccltune::tuner {

// Bytes that NCCL rounds a chunk down to (ncclProtoGrainSize, 2.30); a smaller one becomes 0.
inline constexpr std::array<size_t, abi::kNumProtocols> kGrainBytes = {16, 1920, 512};

// NCCL holds the answer against the protocol's ordinary buffer. NVLS and CollNet have buffers of
// their own, which its own proposal fits and a larger one may overrun.
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
