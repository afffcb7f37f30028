// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v5, symbol ncclTunerPlugin_v5, since NCCL 2.28.
// NCCL 2.28 and 2.29 look for this version first. Later NCCL versions use it if the plugin exports
// no newer symbol. This version adds the communicator id, the NVLink domains and the constants of
// the cost model to init, and renames destroy to finalize. This header is frozen: a change of
// layout needs a new version and a new header.
#ifndef NCCLTUNE_ABI_TUNER_V5_H_
#define NCCLTUNE_ABI_TUNER_V5_H_

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"

namespace nccltune::abi {

struct NvlDomainInfoV5 {
  int domains;
  int min_ranks_per_domain;
  int max_ranks_per_domain;
};
static_assert(offsetof(NvlDomainInfoV5, domains) == 0);
static_assert(offsetof(NvlDomainInfoV5, min_ranks_per_domain) == 4);
static_assert(offsetof(NvlDomainInfoV5, max_ranks_per_domain) == 8);
static_assert(sizeof(NvlDomainInfoV5) == 12);

inline constexpr int kNumComputeCapabilitiesV5 = 4;

// The constants of NCCL's cost model: latencies in microseconds, bandwidths in GB/s. NCCL 2.31
// resets the constants after init, so changes by a plugin are lost.
struct TunerConstantsV5 {
  double base_latencies[kNumAlgorithms][kNumProtocols];
  double hw_latencies[kNumHardwareLinks][kNumAlgorithms][kNumProtocols];
  double ll_max_bws[kNumComputeCapabilitiesV5][kNumTuningScales];
  double per_ch_max_ring_ll128_bws[kNumComputeCapabilitiesV5][kNumTuningScales];
  double per_ch_max_tree_ll128_bws[kNumComputeCapabilitiesV5][kNumTuningScales];
  double per_ch_max_tree_bws[kNumComputeCapabilitiesV5][kNumTuningScales];
  double per_ch_max_nvls_tree_bws[kNumComputeCapabilitiesV5][kNumTuningScales];
};
static_assert(offsetof(TunerConstantsV5, base_latencies) == 0);
static_assert(offsetof(TunerConstantsV5, hw_latencies) == 168);
static_assert(offsetof(TunerConstantsV5, ll_max_bws) == 672);
static_assert(offsetof(TunerConstantsV5, per_ch_max_ring_ll128_bws) == 768);
static_assert(offsetof(TunerConstantsV5, per_ch_max_tree_ll128_bws) == 864);
static_assert(offsetof(TunerConstantsV5, per_ch_max_tree_bws) == 960);
static_assert(offsetof(TunerConstantsV5, per_ch_max_nvls_tree_bws) == 1056);
static_assert(sizeof(TunerConstantsV5) == 1152);

struct TunerV5 {
  const char* name;

  // Called once per communicator. `constants` may be changed in place before NCCL builds its cost
  // model.
  Result (*init)(void** context, uint64_t communicator_id, size_t ranks, size_t nodes,
                 LogFunction log, NvlDomainInfoV5* nvl_domains, TunerConstantsV5* constants);

  // Called once per enqueued collective. `cost_table` is declared as float** but is one
  // contiguous float[algorithms][protocols] of predicted microseconds. An entry is negative if NCCL
  // cannot run this pair of algorithm and protocol. NCCL runs the pair with the lowest time. On
  // entry *channels is 0, which means that NCCL decides. `registered_buffers` is also 1 while a
  // CUDA graph is captured (NCCL_GRAPH_REGISTER, default 1).
  Result (*get_coll_info)(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                          float** cost_table, int algorithms, int protocols, int registered_buffers,
                          int* channels);

  Result (*finalize)(void* context);
};

static_assert(offsetof(TunerV5, name) == 0);
static_assert(offsetof(TunerV5, init) == 8);
static_assert(offsetof(TunerV5, get_coll_info) == 16);
static_assert(offsetof(TunerV5, finalize) == 24);
static_assert(sizeof(TunerV5) == 32);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_V5_H_
