// SPDX-License-Identifier: Apache-2.0
//
// Finds the platform that this process runs on, and compares it with the one on which the rules
// were measured.
#ifndef NCCLTUNE_TUNER_PROVENANCE_H_
#define NCCLTUNE_TUNER_PROVENANCE_H_

#include <optional>
#include <string>
#include <vector>

#include "abi/tuner_types.h"
#include "common/nccl_version.h"
#include "tuner/config_header.h"

namespace nccltune::tuner {

struct RunningPlatform {
  std::optional<NcclVersion> nccl;
  std::optional<std::string> gpu;  // of the calling thread's current CUDA context
};

// Queries the libraries that the process has loaded; unknown values stay empty. `log` is NCCL's
// logger: its address shows which of several NCCL libraries is running.
RunningPlatform FindRunning(abi::LogFunction log);

// Returns one phrase for each value that differs between the header and the running platform.
// Values that are unknown on either side are not compared. NCCL's patch releases are not compared
// either.
std::vector<std::string> StaleReasons(const ConfigHeader& header, const RunningPlatform& running);

// Returns whether the header names the GPU and the NCCL version, and both match the running ones.
bool MeasuredHere(const ConfigHeader& header, const RunningPlatform& running);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_PROVENANCE_H_
