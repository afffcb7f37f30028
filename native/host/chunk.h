// SPDX-License-Identifier: Apache-2.0
// What NCCL does with a chunk size from a plugin (interface v6, NCCL 2.30 and later).
#ifndef NCCLTUNE_HOST_CHUNK_H_
#define NCCLTUNE_HOST_CHUNK_H_

#include <cstddef>

#include "host/names.h"

namespace nccltune::host {

struct ChunkLimits {
  size_t largest;  // bytes; a larger wish is cut to it
  size_t grain;    // bytes; what is left is rounded down to a multiple
};

// With NCCL's default buffer sizes (NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE unset);
// calcCollChunking in src/enqueue.cc, 2.30.7.
ChunkLimits LimitsOfChunk(int collective, Combination combination);

// The chunk size that NCCL runs with.
size_t FinalChunk(size_t asked, const ChunkLimits& limits);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_CHUNK_H_
