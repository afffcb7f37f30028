// SPDX-License-Identifier: Apache-2.0
// NCCL's tuner plugin interface, v2 to v7. A tuner must only return kSuccess. Up to NCCL 2.32 any
// other result fails the collective or the communicator, although NCCL's header promises a
// fallback. These are our own declarations of NCCL's public interface, checked against NCCL 2.21
// to 2.32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"

namespace nccltune::abi {

// NCCL's name: ncclFunc_t. NCCL asks tuners only about the first five.
enum TunedCollective : int {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
};
inline constexpr int kNumCollectives = 5;

// NCCL's names: NCCL_ALGO_*.
enum Algorithm : int {
  kAlgorithmUndefined = -1,
  kTree = 0,
  kRing = 1,
  kCollnetDirect = 2,
  kCollnetChain = 3,
  kNvls = 4,
  kNvlsTree = 5,
  kPat = 6,  // since NCCL 2.23; tables of 2.22 have six rows
};
inline constexpr int kNumAlgorithms = 7;

// NCCL's names: NCCL_PROTO_*.
enum Protocol : int {
  kProtocolUndefined = -1,
  kLl = 0,
  kLl128 = 1,
  kSimple = 2,
};
inline constexpr int kNumProtocols = 3;

// NCCL_ALGO_PROTO_IGNORE: the cost table entry of an algorithm and protocol that NCCL will not run.
inline constexpr float kIgnore = -1.0F;

// First index of TunerConstants::hw_latencies.
enum HardwareLink : int { kLinkNvlink = 0, kLinkPci = 1, kLinkNet = 2 };
inline constexpr int kNumHardwareLinks = 3;

// First index of the bandwidth tables of TunerConstants.
enum ComputeCapability : int {
  kVolta = 0,
  kAmpere = 1,
  kHopper = 2,
  kBlackwell = 3,
  kRubin = 4,  // since NCCL 2.32 (interface v7)
};

// Second index of the bandwidth tables of TunerConstants; the last one is for three or more nodes.
enum TuningScale : int { kOneNode = 0, kTwoNodes = 1, kFourNodes = 2 };
inline constexpr int kNumTuningScales = 3;

static_assert(sizeof(TunedCollective) == 4);

// The interface exists in six versions: NCCL looks for the symbol ncclTunerPlugin_v<version> of its
// newest version first, and then for older ones. All of them are frozen: a change of layout needs a
// new version.
//
//   version  newest in NCCL  adds
//   v2       2.21            the only version in use without a cost table: the tuner returns its
//                            choice, and NCCL runs the choice without a check
//   v3       2.22, 2.23      the cost table: six rows in 2.22, seven since 2.23 (PAT)
//   v4       2.24 to 2.27    whether both buffers are registered
//   v5       2.28, 2.29      the communicator id, the NVLink domains and the constants of the cost
//                            model in init; destroy is renamed to finalize
//   v6       2.30, 2.31      get_chunk_size as the last member
//   v7       2.32            a fifth row of compute capability (Rubin) in the constants

struct TunerV2 {
  const char* name;

  // Called once per communicator. `context` is passed to every other call.
  Result (*init)(size_t ranks, size_t nodes, LogFunction log, void** context);

  // Called once per enqueued collective. `bytes` is the total over all ranks for all-gather and
  // reduce-scatter. On entry *algorithm and *protocol are -1 and *channels is 0, which means that
  // NCCL decides.
  Result (*get_coll_info)(void* context, TunedCollective collective, size_t bytes,
                          int collnet_support, int nvls_support, int pipe_ops, int* algorithm,
                          int* protocol, int* channels);

  Result (*destroy)(void* context);
};

// Called once per enqueued collective. `cost_table` is declared as float** but is one contiguous
// float[algorithms][protocols] of predicted microseconds. An entry is negative if NCCL cannot run
// this pair of algorithm and protocol. NCCL runs the pair with the lowest time. On entry *channels
// is 0, which means that NCCL decides. Since NCCL 2.31, *channels can only lower NCCL's own channel
// count. NCCL 2.31 selects a pair that it can run and whose entry the tuner has set to -1.
using GetCollInfoV3 = Result(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                             float** cost_table, int algorithms, int protocols, int* channels);

// `registered_buffers` is also 1 while a CUDA graph is captured (NCCL_GRAPH_REGISTER, default 1).
using GetCollInfoV4 = Result(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                             float** cost_table, int algorithms, int protocols,
                             int registered_buffers, int* channels);

template <typename GetCollInfo>
struct TunerWithCostTable {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, LogFunction log, void** context);
  GetCollInfo* get_coll_info;
  Result (*destroy)(void* context);
};
using TunerV3 = TunerWithCostTable<GetCollInfoV3>;
using TunerV4 = TunerWithCostTable<GetCollInfoV4>;

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
inline constexpr int kNumComputeCapabilitiesV7 = 5;

// The constants of NCCL's cost model: latencies in microseconds, bandwidths in GB/s. NCCL 2.31
// resets the constants after init, so changes by a plugin are lost.
// `Bandwidths`: a table by compute capability and scale.
template <typename Bandwidths>
struct TunerConstants {
  double base_latencies[kNumAlgorithms][kNumProtocols];
  double hw_latencies[kNumHardwareLinks][kNumAlgorithms][kNumProtocols];
  Bandwidths ll_max_bws;
  Bandwidths per_ch_max_ring_ll128_bws;
  Bandwidths per_ch_max_tree_ll128_bws;
  Bandwidths per_ch_max_tree_bws;
  Bandwidths per_ch_max_nvls_tree_bws;
};
using TunerConstantsV5 = TunerConstants<double[kNumComputeCapabilitiesV5][kNumTuningScales]>;
using TunerConstantsV6 = TunerConstantsV5;
using TunerConstantsV7 = TunerConstants<double[kNumComputeCapabilitiesV7][kNumTuningScales]>;

// `table`: the size of a table of bandwidths.
template <typename Constants>
constexpr bool HasConstants(size_t table) {
  return offsetof(Constants, base_latencies) == 0 && offsetof(Constants, hw_latencies) == 168 &&
         offsetof(Constants, ll_max_bws) == 672 &&
         offsetof(Constants, per_ch_max_ring_ll128_bws) == 672 + table &&
         offsetof(Constants, per_ch_max_tree_ll128_bws) == 672 + 2 * table &&
         offsetof(Constants, per_ch_max_tree_bws) == 672 + 3 * table &&
         offsetof(Constants, per_ch_max_nvls_tree_bws) == 672 + 4 * table &&
         sizeof(Constants) == 672 + 5 * table;
}
static_assert(HasConstants<TunerConstantsV5>(96) && HasConstants<TunerConstantsV7>(120));

// Called once per communicator. `constants` may be changed in place before NCCL builds its cost
// model.
template <typename Constants>
using InitTuner = Result(void** context, uint64_t communicator_id, size_t ranks, size_t nodes,
                         LogFunction log, NvlDomainInfoV5* nvl_domains, Constants* constants);

struct TunerV5 {
  const char* name;
  InitTuner<TunerConstantsV5>* init;
  GetCollInfoV4* get_coll_info;
  Result (*finalize)(void* context);
};

template <typename Constants>
struct TunerWithChunkSize {
  const char* name;
  InitTuner<Constants>* init;
  GetCollInfoV4* get_coll_info;
  Result (*finalize)(void* context);

  // Optional: the function pointer may be null. Called one to three times per collective, with
  // `channels` 1 and the bytes of one channel. Not called for CollNet. NCCL limits *chunk_bytes to
  // the size of its buffers and rounds *chunk_bytes down to the protocol's grain: LL 16, LL128
  // 1920, Simple 512 bytes. A value below one grain becomes 0.
  Result (*get_chunk_size)(void* context, TunedCollective collective, size_t bytes, int algorithm,
                           int protocol, int channels, size_t* chunk_bytes);
};
using TunerV6 = TunerWithChunkSize<TunerConstantsV5>;
using TunerV7 = TunerWithChunkSize<TunerConstantsV7>;

template <typename Tuner>
constexpr bool HasTunerLayout(size_t bytes, size_t end_offset) {
  return offsetof(Tuner, name) == 0 && offsetof(Tuner, init) == 8 &&
         offsetof(Tuner, get_coll_info) == 16 && end_offset == 24 && sizeof(Tuner) == bytes;
}
static_assert(HasTunerLayout<TunerV2>(32, offsetof(TunerV2, destroy)));
static_assert(HasTunerLayout<TunerV3>(32, offsetof(TunerV3, destroy)));
static_assert(HasTunerLayout<TunerV4>(32, offsetof(TunerV4, destroy)));
static_assert(HasTunerLayout<TunerV5>(32, offsetof(TunerV5, finalize)));
static_assert(HasTunerLayout<TunerV6>(40, offsetof(TunerV6, finalize)));
static_assert(HasTunerLayout<TunerV7>(40, offsetof(TunerV7, finalize)));
static_assert(offsetof(TunerV6, get_chunk_size) == 32 && offsetof(TunerV7, get_chunk_size) == 32);

}  // namespace nccltune::abi
