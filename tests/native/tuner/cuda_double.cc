// SPDX-License-Identifier: Apache-2.0
// Built as a library that calls itself libcuda.so.1 and has the two functions that the plugin uses.
#include <cstdio>

namespace {
int current_device = -1;
}

extern "C" {

__attribute__((visibility("default"))) void set_current_device(int device);
__attribute__((visibility("default"))) int cuCtxGetDevice(int* device);
__attribute__((visibility("default"))) int cuDeviceGetName(char* name, int length, int device);

void set_current_device(int device) { current_device = device; }

int cuCtxGetDevice(int* device) {
  if (current_device < 0) return 201;  // CUDA_ERROR_INVALID_CONTEXT
  *device = current_device;
  return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<size_t>(length), "Double %d", device);
  return 0;
}
}
