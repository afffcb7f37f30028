// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v2, symbol ncclTunerPlugin_v2, since NCCL 2.21.
// NCCL 2.21 looks for this version first. Later NCCL versions use it if the plugin exports no newer
// symbol. This is the only version in use without a cost table: the tuner returns its choice, and
// NCCL runs the choice without a check. This header is frozen: a change of layout needs a new
// version and a new header.
#ifndef NCCLTUNE_ABI_TUNER_V2_H_
#define NCCLTUNE_ABI_TUNER_V2_H_

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"

namespace nccltune::abi {

struct TunerV2 {
  const char* name;

  // Called once per communicator. `context` is passed to every other call.
  Result (*init)(size_t ranks, size_t nodes, LogFunction log, void** context);

  // Called once per enqueued collective. `bytes` is the total over all ranks for all-gather and
  // reduce-scatter. On entry *algorithm and *protocol are -1 and
  // *channels is 0, which means that NCCL decides.
  Result (*get_coll_info)(void* context, TunedCollective collective, size_t bytes,
                          int collnet_support, int nvls_support, int pipe_ops, int* algorithm,
                          int* protocol, int* channels);

  Result (*destroy)(void* context);
};

static_assert(offsetof(TunerV2, name) == 0);
static_assert(offsetof(TunerV2, init) == 8);
static_assert(offsetof(TunerV2, get_coll_info) == 16);
static_assert(offsetof(TunerV2, destroy) == 24);
static_assert(sizeof(TunerV2) == 32);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_V2_H_
