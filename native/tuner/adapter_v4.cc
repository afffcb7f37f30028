// SPDX-License-Identifier: Apache-2.0
#include "abi/tuner_v4.h"
#include "common/export.h"
#include "tuner/plugin.h"

namespace nccltune::tuner {
namespace {

abi::Result Init(size_t ranks, size_t nodes, abi::LogFunction log, void** context) {
  return Start(4, ranks, nodes, log, context);
}

abi::Result GetCollInfo(void* context, abi::Collective collective, size_t bytes, int pipe_ops,
                        float** cost_table, int algorithms, int protocols, int registered_buffers,
                        int* channels) {
  const Call call = {collective, bytes, pipe_ops, registered_buffers};
  return DecideFromTable(context, call, cost_table, algorithms, protocols, channels);
}

}  // namespace
}  // namespace nccltune::tuner

using namespace nccltune::tuner;  // NOLINT(google-build-using-namespace)

extern "C" {
NCCLTUNE_EXPORT extern const nccltune::abi::TunerV4 ncclTunerPlugin_v4;
const nccltune::abi::TunerV4 ncclTunerPlugin_v4 = {
    .name = kPluginName,
    .init = Init,
    .get_coll_info = GetCollInfo,
    .destroy = Stop,
};
}
