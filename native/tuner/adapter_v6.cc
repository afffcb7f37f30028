// SPDX-License-Identifier: Apache-2.0
#include "abi/tuner_v6.h"
#include "common/export.h"
#include "tuner/plugin.h"

namespace nccltune::tuner {
namespace {

abi::Result Init(void** context, uint64_t /*communicator_id*/, size_t ranks, size_t nodes,
                 abi::LogFunction log, abi::NvlDomainInfoV6* /*nvl_domains*/,
                 abi::TunerConstantsV6* /*constants*/) {
  return Start(6, ranks, nodes, log, context);
}

abi::Result GetCollInfo(void* context, abi::Collective collective, size_t bytes, int pipe_ops,
                        float** cost_table, int algorithms, int protocols, int registered_buffers,
                        int* channels) {
  const Call call = {collective, bytes, pipe_ops, registered_buffers};
  return DecideFromTable(context, call, cost_table, algorithms, protocols, channels);
}

// `bytes` is the share of one channel, not the call's: see granted_chunks.h.
abi::Result GetChunkSize(void* context, abi::Collective collective, size_t /*bytes*/, int algorithm,
                         int protocol, int /*channels*/, size_t* chunk_bytes) {
  return DecideChunkSize(context, collective, algorithm, protocol, chunk_bytes);
}

}  // namespace
}  // namespace nccltune::tuner

using namespace nccltune::tuner;  // NOLINT(google-build-using-namespace)

extern "C" {
NCCLTUNE_EXPORT extern const nccltune::abi::TunerV6 ncclTunerPlugin_v6;
const nccltune::abi::TunerV6 ncclTunerPlugin_v6 = {
    .name = kPluginName,
    .init = Init,
    .get_coll_info = GetCollInfo,
    .finalize = Stop,
    .get_chunk_size = GetChunkSize,
};
}
