// SPDX-License-Identifier: Apache-2.0
//
// From the environment and the configuration file to a communicator's tables, with one INFO line
// that says what became of it.
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

// Throws std::bad_alloc only.
std::unique_ptr<Communicator> StartCommunicator(const StartArguments& arguments);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_STARTUP_H_
