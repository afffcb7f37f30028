// SPDX-License-Identifier: Apache-2.0
#include "tuner/provenance.h"

#include <array>
#include <cstring>

#include "common/shared_library.h"
#include "common/text.h"

namespace nccltune::tuner {
namespace {

// Functions of nccl.h and cuda.h; all return 0 on success.
using NcclGetVersion = int(int* version);
using CuCtxGetDevice = int(int* device);
using CuDeviceGetName = int(char* name, int length, int device);

std::optional<NcclVersion> RunningNccl(abi::LogFunction log) {
  const SharedLibrary nccl = SharedLibrary::Holding(reinterpret_cast<const void*>(log));
  const SharedLibrary global = SharedLibrary::Global();
  auto* get_version = nccl.Find<NcclGetVersion>("ncclGetVersion");
  if (get_version == nullptr) get_version = global.Find<NcclGetVersion>("ncclGetVersion");
  int code = 0;
  if (get_version == nullptr || get_version(&code) != 0) return std::nullopt;
  return NcclVersionFromCode(code);
}

std::optional<std::string> RunningGpu() {
  const SharedLibrary cuda = SharedLibrary::Loaded("libcuda.so.1");
  auto* get_device = cuda.Find<CuCtxGetDevice>("cuCtxGetDevice");
  auto* get_name = cuda.Find<CuDeviceGetName>("cuDeviceGetName");
  if (get_device == nullptr || get_name == nullptr) return std::nullopt;
  int device = 0;
  std::array<char, 256> name{};
  if (get_device(&device) != 0) return std::nullopt;
  if (get_name(name.data(), static_cast<int>(name.size()) - 1, device) != 0) return std::nullopt;
  return std::string(name.data());
}

bool SameRelease(const NcclVersion& a, const NcclVersion& b) {
  return a.major == b.major && a.minor == b.minor;
}

}  // namespace

RunningPlatform FindRunning(abi::LogFunction log) { return {RunningNccl(log), RunningGpu()}; }

std::vector<std::string> StaleReasons(const ConfigHeader& header, const RunningPlatform& running) {
  std::vector<std::string> reasons;
  if (header.nccl && running.nccl && !SameRelease(*header.nccl, *running.nccl)) {
    reasons.push_back("NCCL " + ToString(*header.nccl) + " (this is " + ToString(*running.nccl) +
                      ")");
  }
  if (header.gpu && running.gpu && *header.gpu != *running.gpu) {
    reasons.push_back(Quoted(*header.gpu, 80) + " (this is " + Quoted(*running.gpu, 80) + ")");
  }
  return reasons;
}

bool MeasuredHere(const ConfigHeader& header, const RunningPlatform& running) {
  return header.nccl && running.nccl && header.gpu && running.gpu &&
         StaleReasons(header, running).empty();
}

}  // namespace nccltune::tuner
