// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v3, symbol ncclTunerPlugin_v3, since NCCL 2.22.
// Native in 2.22 and 2.23; accepted later when no newer symbol is exported.
// Adds the cost table: six rows in 2.22, seven since 2.23 (PAT).
// Frozen: a change of layout is a new version and a new header.
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
  // cannot run the pair. NCCL runs the lowest one. On entry *channels is 0: NCCL decides.
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
