// SPDX-License-Identifier: Apache-2.0
//
// The life of a communicator in the plugin, the same for every interface version. Nothing leaves
// these functions but kSuccess: any other result would fail NCCL's communicator or collective.
#ifndef NCCLTUNE_TUNER_PLUGIN_H_
#define NCCLTUNE_TUNER_PLUGIN_H_

#include <cstddef>

#include "abi/tuner_types.h"
#include "tuner/decision.h"

namespace nccltune::tuner {

inline constexpr const char* kPluginName = "nccltune";

// Reads the configuration, logs what became of it and makes the tables. Whatever fails, memory
// included, leaves a context (possibly null) with which every call is left to NCCL.
abi::Result Start(int interface_version, size_t ranks, size_t nodes, abi::LogFunction log,
                  void** context) noexcept;

abi::Result Stop(void* context) noexcept;

// Since v3. `cost_table` is a contiguous float[algorithms][protocols] in spite of its type.
abi::Result DecideFromTable(void* context, const Call& call, float** cost_table, int algorithms,
                            int protocols, int* channels) noexcept;

// v2. The facts that the communicator knows are filled in here.
abi::Result DecideDirectly(void* context, const Call& call, int collnet_support, int nvls_support,
                           int* algorithm, int* protocol, int* channels) noexcept;

// Since v6.
abi::Result DecideChunkSize(void* context, abi::Collective collective, int algorithm, int protocol,
                            size_t* chunk_bytes) noexcept;

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_PLUGIN_H_
