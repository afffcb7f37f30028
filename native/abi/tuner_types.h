// SPDX-License-Identifier: Apache-2.0
//
// Enumerations and constants that all versions of NCCL's tuner interface share. A tuner must only
// return kSuccess. Up to NCCL 2.32 any other result fails the collective or the communicator,
// although NCCL's header promises a fallback. These are our own declarations of NCCL's public
// interface, checked against NCCL 2.21 to 2.30.
#ifndef NCCLTUNE_ABI_TUNER_TYPES_H_
#define NCCLTUNE_ABI_TUNER_TYPES_H_

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

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_TUNER_TYPES_H_
