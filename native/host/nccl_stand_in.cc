// SPDX-License-Identifier: Apache-2.0
#include "host/nccl_stand_in.h"

#include <atomic>

#include "abi/tuner.h"

namespace nccltune::host {
namespace {

std::atomic<int> g_code = 0;

}  // namespace

void StandInForNccl(NcclVersion version) {
  g_code = version.major * 10000 + version.minor * 100 + version.patch;
}

}  // namespace nccltune::host

// ncclResult_t ncclGetVersion(int*) of nccl.h, with the version encoding of NCCL 2.9 and later.
extern "C" __attribute__((visibility("default"))) nccltune::abi::Result ncclGetVersion(
    int* version);

nccltune::abi::Result ncclGetVersion(int* version) {
  if (version == nullptr) return nccltune::abi::kInvalidArgument;
  *version = nccltune::host::g_code;
  return nccltune::abi::kSuccess;
}
