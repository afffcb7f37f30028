// SPDX-License-Identifier: Apache-2.0
#include "tuner/plugin.h"

#include <memory>

#include "common/log.h"
#include "tuner/startup.h"

namespace nccltune::tuner {

abi::Result Start(int interface_version, size_t ranks, size_t nodes, abi::LogFunction log,
                  void** context) noexcept {
  if (context == nullptr) return abi::kSuccess;
  *context = nullptr;
  try {
    *context = StartCommunicator({interface_version, {nodes, ranks}, log}).release();
  } catch (...) {
    Log(log, kLogSubsystems, kLogPrefix).Warn("out of memory at init: NCCL decides everything");
  }
  return abi::kSuccess;
}

abi::Result Stop(void* context) noexcept {
  const std::unique_ptr<TunerContext> communicator(static_cast<TunerContext*>(context));
  return abi::kSuccess;
}

abi::Result DecideFromTable(void* context, const Call& call, float** cost_table, int algorithms,
                            int protocols, int* channels) noexcept {
  if (context == nullptr) return abi::kSuccess;
  const TableOffer offer(reinterpret_cast<float*>(cost_table), algorithms, protocols);
  Decide(*static_cast<const TunerContext*>(context), call, offer, channels);
  return abi::kSuccess;
}

abi::Result DecideDirectly(void* context, const Call& call, int collnet_support, int nvls_support,
                           int* algorithm, int* protocol, int* channels) noexcept {
  if (context == nullptr) return abi::kSuccess;
  const auto& communicator = *static_cast<const TunerContext*>(context);
  const WithoutTable facts = {.collective = call.collective,
                              .collnet_support = collnet_support,
                              .nvls_support = nvls_support,
                              .scale = communicator.scale,
                              .measured_here = communicator.measured_here,
                              .filtered = communicator.filtered};
  Decide(communicator, call, DirectOffer(facts, algorithm, protocol), channels);
  return abi::kSuccess;
}

abi::Result DecideChunkSize(void* context, abi::TunedCollective collective, int algorithm,
                            int protocol, size_t* chunk_bytes) noexcept {
  if (context == nullptr || chunk_bytes == nullptr) return abi::kSuccess;
  DecideChunk(*static_cast<const TunerContext*>(context), collective, algorithm, protocol,
              chunk_bytes);
  return abi::kSuccess;
}

}  // namespace nccltune::tuner
