// SPDX-License-Identifier: Apache-2.0
#include "tuner/nccl_double.h"

#include <atomic>

namespace {
std::atomic<int> version_code{0};
}

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);

extern "C" int ncclGetVersion(int* version) {
  if (version_code == 0) return 1;
  *version = version_code;
  return 0;
}

namespace nccltune::tuner {

void SetNcclVersion(int code) { version_code = code; }

}  // namespace nccltune::tuner
