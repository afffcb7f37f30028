// SPDX-License-Identifier: Apache-2.0
#include "abi/tuner_v2.h"
#include "common/export.h"
#include "tuner/plugin.h"

namespace nccltune::tuner {
namespace {

abi::Result Init(size_t ranks, size_t nodes, abi::LogFunction log, void** context) {
  return Start(2, ranks, nodes, log, context);
}

// v2 has no cost table and does not tell about registered buffers.
abi::Result GetCollInfo(void* context, abi::Collective collective, size_t bytes,
                        int collnet_support, int nvls_support, int pipe_ops, int* algorithm,
                        int* protocol, int* channels) {
  const Call call = {collective, bytes, pipe_ops, kAny};
  return DecideDirectly(context, call, collnet_support, nvls_support, algorithm, protocol,
                        channels);
}

}  // namespace
}  // namespace nccltune::tuner

using namespace nccltune::tuner;  // NOLINT(google-build-using-namespace)

extern "C" {
NCCLTUNE_EXPORT extern const nccltune::abi::TunerV2 ncclTunerPlugin_v2;
const nccltune::abi::TunerV2 ncclTunerPlugin_v2 = {
    .name = kPluginName,
    .init = Init,
    .get_coll_info = GetCollInfo,
    .destroy = Stop,
};
}
