// SPDX-License-Identifier: Apache-2.0
#include "abi/tuner_v3.h"
#include "common/export.h"
#include "tuner/plugin.h"

namespace nccltune::tuner {
namespace {

abi::Result Init(size_t ranks, size_t nodes, abi::LogFunction log, void** context) {
  return Start(3, ranks, nodes, log, context);
}

// v3 does not tell about registered buffers.
abi::Result GetCollInfo(void* context, abi::Collective collective, size_t bytes, int pipe_ops,
                        float** cost_table, int algorithms, int protocols, int* channels) {
  const Call call = {collective, bytes, pipe_ops, kAny};
  return DecideFromTable(context, call, cost_table, algorithms, protocols, channels);
}

}  // namespace
}  // namespace nccltune::tuner

using namespace nccltune::tuner;  // NOLINT(google-build-using-namespace)

extern "C" {
NCCLTUNE_EXPORT extern const nccltune::abi::TunerV3 ncclTunerPlugin_v3;
const nccltune::abi::TunerV3 ncclTunerPlugin_v3 = {
    .name = kPluginName,
    .init = Init,
    .get_coll_info = GetCollInfo,
    .destroy = Stop,
};
}
