// SPDX-License-Identifier: Apache-2.0
//
// The functions that the adapters of all interface versions call. They return only kSuccess: any
// other result would fail NCCL's communicator or collective.
#ifndef NCCLTUNE_TUNER_PLUGIN_H_
#define NCCLTUNE_TUNER_PLUGIN_H_

#include <cstddef>

#include "abi/tuner_types.h"
#include "tuner/decision.h"

namespace nccltune::tuner {

inline constexpr const char* kPluginName = "nccltune";

// Reads the configuration, logs the outcome and builds the tables. On any failure, also of memory,
// the context (which may be null) leaves every call to NCCL.
abi::Result Start(int interface_version, size_t ranks, size_t nodes, abi::LogFunction log,
                  void** context) noexcept;

abi::Result Stop(void* context) noexcept;

// Since v3. `cost_table` is one contiguous float[algorithms][protocols], despite its type.
abi::Result DecideFromTable(void* context, const Call& call, float** cost_table, int algorithms,
                            int protocols, int* channels) noexcept;

// For v2. Adds the facts that the communicator's context has.
abi::Result DecideDirectly(void* context, const Call& call, int collnet_support, int nvls_support,
                           int* algorithm, int* protocol, int* channels) noexcept;

// Since v6. Decides the chunk size of one channel.
abi::Result DecideChunkSize(void* context, abi::TunedCollective collective, int algorithm,
                            int protocol, size_t* chunk_bytes) noexcept;

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_PLUGIN_H_
