// SPDX-License-Identifier: Apache-2.0
//
// Builds a communicator's tables from the environment and the configuration file, and logs one INFO
// line about the result.
#ifndef NCCLTUNE_TUNER_STARTUP_H_
#define NCCLTUNE_TUNER_STARTUP_H_

#include <memory>
#include <string_view>

#include "abi/tuner_types.h"
#include "tuner/communicator.h"

namespace nccltune::tuner {

inline constexpr std::string_view kLogPrefix = "TUNER/nccltune: ";
inline constexpr unsigned long kLogSubsystems = abi::kSubsysInit | abi::kSubsysTuning;

struct StartArguments {
  int interface_version;
  Scale scale;
  abi::LogFunction log;  // may be null
};

// Returns the state of a new communicator. Throws only std::bad_alloc.
std::unique_ptr<TunerContext> StartCommunicator(const StartArguments& arguments);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_STARTUP_H_
