// SPDX-License-Identifier: Apache-2.0
// The functions that the adapters of all interface versions call. They return only kSuccess,
// because any other result would fail NCCL's communicator or collective.
//
// The files of this folder:
//   adapters           the exported function tables, one for each interface version
//   communicator       the plugin's state of one communicator
//   config             reads the configuration file once in a process; config_row its lines
//   control            the exported control functions; control_state stores their orders
//   decision           decides one call; the pairs that NCCL 2.21 can run
//   plugin             the functions below
//   rule_hits          counts, for other programs, the calls that each row decided
//   rule_set           a row of the configuration, and the rules that apply to a communicator
//   startup            builds the state of a communicator; compares this platform with the
//                      measured one; logs warnings once, and one line about the communicator
#pragma once

#include <cstddef>

#include "abi/tuner.h"
#include "tuner/decision.h"

namespace nccltune::tuner {

inline constexpr const char* kPluginName = "nccltune";

// Reads the configuration, logs the result and builds the tables. After any failure, including a
// lack of memory, NCCL decides every call. The context may be null then.
abi::Result Start(int interface_version, size_t ranks, size_t nodes, abi::LogFunction log,
                  void** context) noexcept;

abi::Result Stop(void* context) noexcept;

// Used by v3 and later. `cost_table` is one contiguous float[algorithms][protocols], despite its
// type.
abi::Result DecideFromTable(void* context, const Call& call, float** cost_table, int algorithms,
                            int protocols, int* channels) noexcept;

// Used by v2. Decides without a cost table, from NCCL's two support flags and the communicator's
// context.
abi::Result DecideDirectly(void* context, const Call& call, int collnet_support, int nvls_support,
                           int* algorithm, int* protocol, int* channels) noexcept;

// Used by v6 and later. Decides the chunk size for one channel.
abi::Result DecideChunkSize(void* context, abi::TunedCollective collective, int algorithm,
                            int protocol, size_t* chunk_bytes) noexcept;

}  // namespace nccltune::tuner
