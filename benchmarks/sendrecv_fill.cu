// SPDX-License-Identifier: Apache-2.0
//
// A kernel that takes every SM and keeps it for a time: nothing else that needs an SM runs meanwhile.
//
//   nvcc -O2 -shared -Xcompiler -fPIC -o fill.so benchmarks/sendrecv_fill.cu
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 1024;

// It reads a clock and no memory: one that polls the host's makes copies to peers sixty times
// slower (benchmarks/results/copy-engine-facts.md).
__global__ void Fill(unsigned long long nanoseconds) {
  unsigned long long start = 0;
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

}  // namespace

// 0, or an error of CUDA.
extern "C" int fill(unsigned long long nanoseconds, cudaStream_t stream) {
  int device = 0;
  int sms = 0;
  int blocks = 0;
  cudaError_t result = cudaGetDevice(&device);
  if (result == cudaSuccess) {
    result = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  }
  if (result == cudaSuccess) {
    result = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Fill, kThreads, 0);
  }
  if (result != cudaSuccess) return static_cast<int>(result);
  Fill<<<sms * blocks, kThreads, 0, stream>>>(nanoseconds);
  return static_cast<int>(cudaGetLastError());
}
