// SPDX-License-Identifier: Apache-2.0
// Built as a library that calls itself libcuda.so.1 and has the functions of events. It also stands
// for the NCCL of the process.
#include "events_double.h"

#include <utility>

#pragma GCC visibility push(default)
extern "C" {
GpuDouble the_gpu_double;

int ncclGetVersion(int* version) {
  *version = the_gpu_double.nccl_version;
  return 0;
}

int cuEventCreate(void** event, unsigned flags) {
  if (the_gpu_double.events == the_gpu_double.most_events) return 2;  // CUDA_ERROR_OUT_OF_MEMORY
  *event = new int64_t();
  ++the_gpu_double.events;
  return flags == 0 ? 0 : 1;  // with timing
}

int cuEventDestroy_v2(void* event) {
  delete static_cast<int64_t*>(event);
  --the_gpu_double.events;
  return 0;
}

int cuEventRecord(void* event, void* /*stream*/) {
  *static_cast<int64_t*>(event) = the_gpu_double.now_ns;
  ++the_gpu_double.records;
  return 0;
}

int cuEventQuery(void* /*event*/) {
  constexpr int kRelaxed = 2;
  if (the_gpu_double.mode != kRelaxed) ++the_gpu_double.forbidden;
  return the_gpu_double.is_behind ? 600 : 0;  // CUDA_ERROR_NOT_READY
}

int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  const int64_t ns = *static_cast<int64_t*>(end) - *static_cast<int64_t*>(start);
  *milliseconds = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return 0;
}

int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = the_gpu_double.capture_status;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, the_gpu_double.mode);
  return 0;
}
}
#pragma GCC visibility pop
