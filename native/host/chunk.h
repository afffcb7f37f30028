// SPDX-License-Identifier: Apache-2.0
// The limits that NCCL applies to a chunk size from a plugin (interface v6, NCCL 2.30 and later).
#ifndef NCCLTUNE_HOST_CHUNK_H_
#define NCCLTUNE_HOST_CHUNK_H_

#include <cstddef>

#include "host/names.h"

namespace nccltune::host {

struct ChunkLimits {
  size_t largest;  // in bytes; NCCL reduces larger requests to this size
  size_t grain;    // in bytes; NCCL rounds the result down to a multiple of this
};

// Returns the limits with NCCL's default buffer sizes (NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE,
// NCCL_LL128_BUFFSIZE unset). Source: calcCollChunking in src/enqueue.cc of 2.30.7.
ChunkLimits LimitsOfChunk(int collective, Combination combination);

// Returns the chunk size that NCCL uses after applying the limits.
size_t FinalChunk(size_t asked, const ChunkLimits& limits);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_CHUNK_H_
