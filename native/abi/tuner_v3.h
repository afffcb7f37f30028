// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v3, symbol ncclTunerPlugin_v3, since NCCL 2.22.
// NCCL 2.22 and 2.23 look for this version first. Later NCCL versions use it if the plugin exports
// no newer symbol. This version adds the cost table: six rows in 2.22, seven since 2.23 (PAT). This
// header is frozen: a change of layout needs a new version and a new header.
#ifndef NCCLTUNE_ABI_TUNER_V3_H_
#define NCCLTUNE_ABI_TUNER_V3_H_

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"

namespace nccltune::abi {

struct TunerV3 {
  const char* name;

  Result (*init)(size_t ranks, size_t nodes, LogFunction log, void** context);

  // Called once per enqueued collective. `cost_table` is declared as float** but is one
  // contiguous float[algorithms][protocols] of predicted microseconds. An entry is negative if NCCL
  // cannot run this pair of algorithm and protocol. NCCL runs the pair with the lowest time. On
  // entry *channels is 0, which means that NCCL decides.
  Result (*get_coll_info)(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int* channels);

  Result (*destroy)(void* context);
};

static_assert(offsetof(TunerV3, name) == 0);
static_assert(offsetof(TunerV3, init) == 8);
static_assert(offsetof(TunerV3, get_coll_info) == 16);
static_assert(offsetof(TunerV3, destroy) == 24);
static_assert(sizeof(TunerV3) == 32);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_V3_H_
