// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v4, symbol ncclTunerPlugin_v4, since NCCL 2.24.
// NCCL 2.24 to 2.27 look for this version first. Later NCCL versions use it if the plugin exports
// no newer symbol. This version adds whether both buffers are registered. This header is frozen: a
// change of layout needs a new version and a new header.
#ifndef NCCLTUNE_ABI_TUNER_V4_H_
#define NCCLTUNE_ABI_TUNER_V4_H_

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"

namespace nccltune::abi {

struct TunerV4 {
  const char* name;

  Result (*init)(size_t ranks, size_t nodes, LogFunction log, void** context);

  // Called once per enqueued collective. `cost_table` is declared as float** but is one
  // contiguous float[algorithms][protocols] of predicted microseconds. An entry is negative if NCCL
  // cannot run this pair of algorithm and protocol. NCCL runs the pair with the lowest time. On
  // entry *channels is 0, which means that NCCL decides. `registered_buffers` is also 1 while a
  // CUDA graph is captured (NCCL_GRAPH_REGISTER, default 1).
  Result (*get_coll_info)(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered_buffers,
                          int* channels);

  Result (*destroy)(void* context);
};

static_assert(offsetof(TunerV4, name) == 0);
static_assert(offsetof(TunerV4, init) == 8);
static_assert(offsetof(TunerV4, get_coll_info) == 16);
static_assert(offsetof(TunerV4, destroy) == 24);
static_assert(sizeof(TunerV4) == 32);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_V4_H_
