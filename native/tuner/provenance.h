// SPDX-License-Identifier: Apache-2.0
//
// What this process runs on, as far as a plugin can see it, and whether rules were measured on it.
#ifndef NCCLTUNE_TUNER_PROVENANCE_H_
#define NCCLTUNE_TUNER_PROVENANCE_H_

#include <optional>
#include <string>
#include <vector>

#include "abi/tuner_types.h"
#include "common/nccl_version.h"
#include "tuner/config_header.h"

namespace nccltune::tuner {

struct Running {
  std::optional<NcclVersion> nccl;
  std::optional<std::string> gpu;  // of the calling thread's current CUDA context
};

// Asks the libraries that the process has loaded already; what they do not tell stays unknown.
// `log` is the logger that NCCL handed over: its address tells which of several NCCLs runs.
Running FindRunning(abi::LogFunction log);

// One phrase for each thing that the header says and that is otherwise here; what is unknown on
// either side is not compared. A patch release of NCCL makes no difference.
std::vector<std::string> StaleReasons(const ConfigHeader& header, const Running& running);

// Whether the header says the GPU and NCCL version, and both are those that run.
bool MeasuredHere(const ConfigHeader& header, const Running& running);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_PROVENANCE_H_
