// SPDX-License-Identifier: Apache-2.0
// The function tables that NCCL looks up by symbol name, one for each version of the tuner
// interface. The functions in this file adapt the signatures of each version to plugin.h. They have
// the same names in all versions; the type of the table entry selects the overload. Only v2 (NCCL
// 2.21) differs in more than signatures: it has no cost table, and NCCL runs the tuner's choice
// unchecked.
#include <cstddef>
#include <cstdint>

#include "abi/tuner.h"
#include "common/export.h"
#include "tuner/plugin.h"

namespace nccltune::tuner {
namespace {

// The init of v2 to v4 (NCCL 2.21 to 2.27).
template <int version>
abi::Result Init(size_t ranks, size_t nodes, abi::LogFunction log, void** context) {
  return Start(version, ranks, nodes, log, context);
}

// The init since v5 (NCCL 2.28). This plugin does not change the constants of the cost model. Their
// struct is a template parameter, because v7 has more constants than v5.
template <int version, typename NvlDomainInfo, typename Constants>
abi::Result Init(void** context, uint64_t /*communicator_id*/, size_t ranks, size_t nodes,
                 abi::LogFunction log, NvlDomainInfo* /*nvl_domains*/, Constants* /*constants*/) {
  return Start(version, ranks, nodes, log, context);
}

// The getCollInfo of v2. It gets no cost table, and does not know whether buffers are registered.
abi::Result GetCollInfo(void* context, abi::TunedCollective collective, size_t bytes,
                        int collnet_support, int nvls_support, int pipe_ops, int* algorithm,
                        int* protocol, int* channels) {
  const Call call = {collective, bytes, pipe_ops, kAny};
  return DecideDirectly(context, call, collnet_support, nvls_support, algorithm, protocol,
                        channels);
}

// The getCollInfo of v3 (NCCL 2.22). It does not know whether buffers are registered.
abi::Result GetCollInfo(void* context, abi::TunedCollective collective, size_t bytes, int pipe_ops,
                        float** cost_table, int algorithms, int protocols, int* channels) {
  const Call call = {collective, bytes, pipe_ops, kAny};
  return DecideFromTable(context, call, cost_table, algorithms, protocols, channels);
}

// The getCollInfo since v4 (NCCL 2.24).
abi::Result GetCollInfo(void* context, abi::TunedCollective collective, size_t bytes, int pipe_ops,
                        float** cost_table, int algorithms, int protocols, int registered_buffers,
                        int* channels) {
  const Call call = {collective, bytes, pipe_ops, registered_buffers};
  return DecideFromTable(context, call, cost_table, algorithms, protocols, channels);
}

// The getChunkSize since v6 (NCCL 2.30). `bytes` is the size of one channel's data and not of the
// call. It cannot select a rule, so it is ignored (communicator.h).
abi::Result GetChunkSize(void* context, abi::TunedCollective collective, size_t /*bytes*/,
                         int algorithm, int protocol, int /*channels*/, size_t* chunk_bytes) {
  return DecideChunkSize(context, collective, algorithm, protocol, chunk_bytes);
}

// The struct of one version. The type of each member selects the overload.
template <typename Tuner, int version>
constexpr Tuner Table() noexcept {
  Tuner tuner = {};
  tuner.name = kPluginName;
  tuner.init = Init<version>;
  tuner.get_coll_info = GetCollInfo;
  if constexpr (version < 5) {
    tuner.destroy = Stop;
  } else {
    tuner.finalize = Stop;
  }
  if constexpr (version >= 6) tuner.get_chunk_size = GetChunkSize;
  return tuner;
}

}  // namespace

extern "C" NCCLTUNE_EXPORT constinit const abi::TunerV2 ncclTunerPlugin_v2 =
    Table<abi::TunerV2, 2>();
extern "C" NCCLTUNE_EXPORT constinit const abi::TunerV3 ncclTunerPlugin_v3 =
    Table<abi::TunerV3, 3>();
extern "C" NCCLTUNE_EXPORT constinit const abi::TunerV4 ncclTunerPlugin_v4 =
    Table<abi::TunerV4, 4>();
extern "C" NCCLTUNE_EXPORT constinit const abi::TunerV5 ncclTunerPlugin_v5 =
    Table<abi::TunerV5, 5>();
extern "C" NCCLTUNE_EXPORT constinit const abi::TunerV6 ncclTunerPlugin_v6 =
    Table<abi::TunerV6, 6>();
extern "C" NCCLTUNE_EXPORT constinit const abi::TunerV7 ncclTunerPlugin_v7 =
    Table<abi::TunerV7, 7>();

}  // namespace nccltune::tuner
