// SPDX-License-Identifier: Apache-2.0
//
// Tuner interface v7, symbol ncclTunerPlugin_v7, since NCCL 2.32.
// NCCL 2.32 looks for this version first.
// This version is like v6, but its constants have a fifth row of compute capability (Rubin).
// This header is frozen: a change of layout needs a new version and a new header.
#ifndef NCCLTUNE_ABI_TUNER_V7_H_
#define NCCLTUNE_ABI_TUNER_V7_H_

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"
#include "abi/tuner_v5.h"

namespace nccltune::abi {

using NvlDomainInfoV7 = NvlDomainInfoV5;

inline constexpr int kNumComputeCapabilitiesV7 = 5;

// The constants of NCCL's cost model: latencies in microseconds, bandwidths in GB/s. NCCL 2.31
// resets the constants after init, so changes by a plugin are lost.
struct TunerConstantsV7 {
  double base_latencies[kNumAlgorithms][kNumProtocols];
  double hw_latencies[kNumHardwareLinks][kNumAlgorithms][kNumProtocols];
  double ll_max_bws[kNumComputeCapabilitiesV7][kNumTuningScales];
  double per_ch_max_ring_ll128_bws[kNumComputeCapabilitiesV7][kNumTuningScales];
  double per_ch_max_tree_ll128_bws[kNumComputeCapabilitiesV7][kNumTuningScales];
  double per_ch_max_tree_bws[kNumComputeCapabilitiesV7][kNumTuningScales];
  double per_ch_max_nvls_tree_bws[kNumComputeCapabilitiesV7][kNumTuningScales];
};
static_assert(offsetof(TunerConstantsV7, base_latencies) == 0);
static_assert(offsetof(TunerConstantsV7, hw_latencies) == 168);
static_assert(offsetof(TunerConstantsV7, ll_max_bws) == 672);
static_assert(offsetof(TunerConstantsV7, per_ch_max_ring_ll128_bws) == 792);
static_assert(offsetof(TunerConstantsV7, per_ch_max_tree_ll128_bws) == 912);
static_assert(offsetof(TunerConstantsV7, per_ch_max_tree_bws) == 1032);
static_assert(offsetof(TunerConstantsV7, per_ch_max_nvls_tree_bws) == 1152);
static_assert(sizeof(TunerConstantsV7) == 1272);

struct TunerV7 {
  const char* name;

  // Called once per communicator. `constants` may be changed in place before NCCL builds its cost
  // model.
  Result (*init)(void** context, uint64_t communicator_id, size_t ranks, size_t nodes,
                 LogFunction log, NvlDomainInfoV7* nvl_domains, TunerConstantsV7* constants);

  // Called once per enqueued collective. `cost_table` is declared as float** but is one
  // contiguous float[algorithms][protocols] of predicted microseconds. An entry is negative if NCCL
  // cannot run this pair of algorithm and protocol. NCCL runs the pair with the lowest time. On
  // entry *channels is 0, which means that NCCL decides. As since NCCL 2.31, *channels can only
  // lower NCCL's own channel count. `registered_buffers` is also 1 while a CUDA graph is captured
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

static_assert(offsetof(TunerV7, name) == 0);
static_assert(offsetof(TunerV7, init) == 8);
static_assert(offsetof(TunerV7, get_coll_info) == 16);
static_assert(offsetof(TunerV7, finalize) == 24);
static_assert(offsetof(TunerV7, get_chunk_size) == 32);
static_assert(sizeof(TunerV7) == 40);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_V7_H_
