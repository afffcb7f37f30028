// SPDX-License-Identifier: Apache-2.0
#include "host/chunk.h"

#include <algorithm>

namespace nccltune::host {
namespace {

constexpr size_t kSteps = 8;  // NCCL_STEPS, the number of slots in each buffer
constexpr size_t kLlBuffer = 512 << 10;
constexpr size_t kLl128Buffer = 4800 << 10;
constexpr size_t kSimpleBuffer = 4 << 20;

}  // namespace

ChunkLimits LimitsOfChunk(int collective, Combination combination) {
  switch (combination.protocol) {
    case abi::kLl:
      return {kLlBuffer / kSteps / 2, 16};  // half of each line holds flags
    case abi::kLl128:
      return {kLl128Buffer / kSteps / 16 * 15, 1920};  // in each line, one word of 16 is a flag
    default: {
      const bool piped = collective != abi::kBroadcast && collective != abi::kReduce;
      const size_t slots = combination.algorithm == abi::kRing && piped ? kSteps / 2 : 1;
      return {kSimpleBuffer / kSteps * slots, 512};
    }
  }
}

size_t FinalChunk(size_t asked, const ChunkLimits& limits) {
  return std::min(asked, limits.largest) / limits.grain * limits.grain;
}

}  // namespace nccltune::host
