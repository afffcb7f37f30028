// SPDX-License-Identifier: Apache-2.0
#include "tuner/support_matrix.h"

namespace nccltune::tuner {
namespace {

bool IsGatherOrScatter(int collective) {
  return collective == abi::kAllGather || collective == abi::kReduceScatter;
}

}  // namespace

bool CanRunWithoutTable(const WithoutTable& facts, int algorithm, int protocol) {
  if (facts.filtered || facts.scale.ranks < 2) return false;
  // LL128 loses data on links that reorder stores. NCCL enables it depending on the path between
  // the GPUs, which a tuner does not know. So LL128 is used only if the rules were measured on this
  // platform.
  if (protocol == abi::kLl128 && !facts.measured_here) return false;
  const bool allreduce = facts.collective == abi::kAllReduce;
  const bool collnet = facts.collnet_support == 1;
  const bool nvls = facts.nvls_support == 1;
  const bool one_node = facts.scale.nodes == 1;
  const bool simple = protocol == abi::kSimple;
  switch (algorithm) {
    case abi::kRing:
      return true;
    case abi::kTree:
      return allreduce;
    case abi::kCollnetDirect:
      // CollNet direct also needs an NVSwitch and, except for all-reduce, a NIC for each GPU. A
      // tuner does not know whether the platform has them. So CollNet direct is used only if the
      // rules were measured on this platform.
      return simple && collnet && facts.measured_here &&
             (allreduce || IsGatherOrScatter(facts.collective));
    case abi::kCollnetChain:
      return simple && collnet && allreduce;
    case abi::kNvls:
      if (!simple || !nvls) return false;
      return allreduce ? one_node || collnet : IsGatherOrScatter(facts.collective) && one_node;
    case abi::kNvlsTree:
      return simple && nvls && allreduce && !one_node;
    default:
      return false;  // NCCL 2.21 has no PAT, which exists since 2.23
  }
}

}  // namespace nccltune::tuner
