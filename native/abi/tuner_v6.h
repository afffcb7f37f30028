// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v6, symbol ncclTunerPlugin_v6, since NCCL 2.30.
// NCCL 2.30 and 2.31 look for this version first. Later NCCL versions use it if the plugin exports
// no newer symbol. This version adds get_chunk_size as the last member; the constants and the
// NVLink domains have the layout of v5. This header is frozen: a change of layout needs a new
// version and a new header.
#ifndef NCCLTUNE_ABI_TUNER_V6_H_
#define NCCLTUNE_ABI_TUNER_V6_H_

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"
#include "abi/tuner_v5.h"

namespace nccltune::abi {

using NvlDomainInfoV6 = NvlDomainInfoV5;
using TunerConstantsV6 = TunerConstantsV5;

struct TunerV6 {
  const char* name;

  // Called once per communicator. `constants` may be changed in place before NCCL builds its cost
  // model.
  Result (*init)(void** context, uint64_t communicator_id, size_t ranks, size_t nodes,
                 LogFunction log, NvlDomainInfoV6* nvl_domains, TunerConstantsV6* constants);

  // Called once per enqueued collective. `cost_table` is declared as float** but is one
  // contiguous float[algorithms][protocols] of predicted microseconds. An entry is negative if NCCL
  // cannot run this pair of algorithm and protocol. NCCL runs the pair with the lowest time. On
  // entry *channels is 0, which means that NCCL decides. Since 2.31, *channels can only lower
  // NCCL's own channel count. Since 2.31, NCCL selects a pair that it can run and whose entry the
  // tuner has set to -1. `registered_buffers` is also 1 while a CUDA graph is captured
  // (NCCL_GRAPH_REGISTER, default 1).
  Result (*get_coll_info)(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered_buffers,
                          int* channels);

  Result (*finalize)(void* context);

  // Optional: the function pointer may be null. Called one to three times per collective, with
  // `channels` 1 and the bytes of one channel. Not called for CollNet. NCCL limits *chunk_bytes to
  // the size of its buffers and rounds *chunk_bytes down to the protocol's grain: LL 16, LL128
  // 1920, Simple 512 bytes. A value below one grain becomes 0.
  Result (*get_chunk_size)(void* context, TunedCollective collective, size_t bytes, int algorithm,
                           int protocol, int channels, size_t* chunk_bytes);
};

static_assert(offsetof(TunerV6, name) == 0);
static_assert(offsetof(TunerV6, init) == 8);
static_assert(offsetof(TunerV6, get_coll_info) == 16);
static_assert(offsetof(TunerV6, finalize) == 24);
static_assert(offsetof(TunerV6, get_chunk_size) == 32);
static_assert(sizeof(TunerV6) == 40);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_V6_H_
