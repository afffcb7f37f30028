// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_RULE_H_
#define NCCLTUNE_TUNER_RULE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"

namespace nccltune::tuner {

inline constexpr int kAny = -1;

// NCCL's MAXCHANNELS since 2.25, the most channels that it can run. It was 32 before, but a
// configuration may be read by any version.
inline constexpr int kMostChannels = 64;

// Largest chunk size that a row may set. NCCL limits a chunk to a buffer, which is smaller.
inline constexpr uint32_t kLargestChunk = uint32_t{1} << 30U;

// One row of a configuration. Nodes, ranks, pipe_ops and registered may be kAny, which matches
// every value.
struct Rule {
  uint64_t min_bytes = 0;  // inclusive; bytes are counted as NCCL's tuner interface counts them
  uint64_t max_bytes = 0;  // inclusive
  uint32_t line = 0;       // line number in the file, counted from 1
  int32_t nodes = kAny;
  int32_t ranks = kAny;
  int32_t pipe_ops = kAny;
  uint32_t chunk_bytes = 0;  // 0: NCCL's choice
  int8_t registered = kAny;
  uint8_t collective = 0;  // abi::TunedCollective
  uint8_t algorithm = 0;   // abi::Algorithm
  uint8_t protocol = 0;    // abi::Protocol
  uint8_t channels = 0;    // 0: NCCL's choice
};

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

#endif  // NCCLTUNE_TUNER_RULE_H_
