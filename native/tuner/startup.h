// SPDX-License-Identifier: Apache-2.0
// Builds a communicator's tables from the environment and the configuration file, and logs one INFO
// line about the result.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/tuner.h"
#include "common/log.h"
#include "common/nccl_version.h"
#include "tuner/communicator.h"
#include "tuner/config.h"

namespace nccltune::tuner {

// Logs each distinct warning once per process, because all communicators of a job read the same
// file.
class Warnings {
 public:
  explicit Warnings(const Log& log) : log_(log) {}

  void LogOnce(std::string_view text) const;

 private:
  const Log& log_;
};

// Forgets the logged warnings, so that each is logged again. For tests.
void ForgetWarnings();

// Finds the platform that this process runs on, and compares it with the one on which the rules
// were measured.

struct RunningPlatform {
  std::optional<NcclVersion> nccl;
  std::optional<std::string> gpu;  // of the calling thread's current CUDA context
  int device = -1;                 // of that context; -1: unknown
};

// Queries the libraries that the process has loaded; unknown values stay empty. `log` is NCCL's
// logger: its address shows which of several NCCL libraries is running.
RunningPlatform FindRunning(abi::LogFunction log);

// Returns one phrase for each value that differs between the header and the running platform.
// Values that are unknown on either side are not compared. NCCL's patch releases are not compared
// either.
std::vector<std::string> StaleReasons(const ConfigHeader& header, const RunningPlatform& running);

// Returns a phrase if the header has another driver version than `file`, the kernel's; else empty,
// also if it cannot be read. Another driver does not make rules stale.
std::string OtherDriver(const ConfigHeader& header, const char* file);

// Returns whether the header names the GPU and the NCCL version, and both match the running ones.
bool MeasuredHere(const ConfigHeader& header, const RunningPlatform& running);

inline constexpr std::string_view kLogPrefix = "TUNER/nccltune: ";
inline constexpr unsigned long kLogSubsystems = abi::kSubsysInit | abi::kSubsysTuning;

struct StartArguments {
  int interface_version;
  Scale scale;
  abi::LogFunction log;                                    // may be null
  const char* driver_file = "/sys/module/nvidia/version";  // as in nccltune's studies
};

// Returns the state of a new communicator. Throws only std::bad_alloc.
std::unique_ptr<TunerContext> StartCommunicator(const StartArguments& arguments);

}  // namespace nccltune::tuner
