// SPDX-License-Identifier: Apache-2.0
//
// A kernel that takes every SM and keeps it until it is told to go: nothing else that needs an SM
// runs meanwhile.
//
//   nvcc -O2 -shared -Xcompiler -fPIC -o fill.so benchmarks/sendrecv_fill.cu
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 1024;

// One thread of a block asks: were it all, what they read of the host's memory would leave nothing
// of the way there to the copy engines.
__global__ void Fill(const volatile int* go) {
  if (threadIdx.x == 0) {
    while (*go == 0) __nanosleep(20000);
  }
  __syncthreads();
}

}  // namespace

// `go`: pinned host memory. 0, or an error of CUDA.
extern "C" int fill(const int* go, cudaStream_t stream) {
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
  Fill<<<sms * blocks, kThreads, 0, stream>>>(go);
  return static_cast<int>(cudaGetLastError());
}
