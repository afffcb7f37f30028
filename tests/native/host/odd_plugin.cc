// SPDX-License-Identifier: Apache-2.0
// A tuner plugin whose interface v3 lacks a function, and which exports the obsolete symbol of v1.
#include "abi/tuner.h"

extern "C" {
__attribute__((visibility("default"))) extern const nccltune::abi::TunerV3 ncclTunerPlugin_v3;
__attribute__((visibility("default"))) extern const int ncclTunerPlugin_v1;
const nccltune::abi::TunerV3 ncclTunerPlugin_v3 = {nullptr, nullptr, nullptr, nullptr};
const int ncclTunerPlugin_v1 = 1;
}
