// SPDX-License-Identifier: Apache-2.0
// Simulates a libnccl.so that a framework has loaded privately.
#include "abi/tuner.h"

extern "C" {

__attribute__((visibility("default"))) int ncclGetVersion(int* version);
__attribute__((visibility("default"))) void nccl_double_logger(nccltune::abi::LogLevel,
                                                               unsigned long, const char*, int,
                                                               const char*, ...);

int ncclGetVersion(int* version) {
  *version = 22105;
  return 0;
}

void nccl_double_logger(nccltune::abi::LogLevel, unsigned long, const char*, int, const char*,
                        ...) {}
}
