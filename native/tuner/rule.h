// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_RULE_H_
#define NCCLTUNE_TUNER_RULE_H_

#include <cstdint>

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

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_RULE_H_
