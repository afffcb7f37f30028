// SPDX-License-Identifier: Apache-2.0
// Built as a library that calls itself libcuda.so.1 and has the functions of events. It also stands
// for the NCCL of the process.
#include "events_double.h"

#include <utility>

namespace {
GpuDouble gpu;
struct Event {
  int64_t at_ns = 0;
};
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
GpuDouble* the_gpu_double();
int ncclGetVersion(int* version);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventElapsedTime(float* milliseconds, void* start, void* end);
int cuStreamIsCapturing(void* stream, int* status);
int cuThreadExchangeStreamCaptureMode(int* mode);

GpuDouble* the_gpu_double() { return &gpu; }

int ncclGetVersion(int* version) {
  *version = gpu.nccl_version;
  return 0;
}

int cuEventCreate(void** event, unsigned flags) {
  if (flags != 0) return 1;
  *event = new Event();
  ++gpu.events;
  return 0;
}

int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  --gpu.events;
  return 0;
}

int cuEventRecord(void* event, void* stream) {
  if (stream == nullptr) return 400;  // CUDA_ERROR_INVALID_HANDLE
  static_cast<Event*>(event)->at_ns = gpu.now_ns;
  ++gpu.records;
  return 0;
}

int cuEventQuery(void* /*event*/) {
  constexpr int kRelaxed = 2;
  if (gpu.mode != kRelaxed) ++gpu.forbidden;
  return gpu.is_behind ? 600 : 0;  // CUDA_ERROR_NOT_READY
}

int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  const auto ns = static_cast<Event*>(end)->at_ns - static_cast<Event*>(start)->at_ns;
  *milliseconds = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return 0;
}

int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = gpu.capture_status;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, gpu.mode);
  return 0;
}
}
#pragma GCC visibility pop
