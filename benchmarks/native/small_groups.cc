// SPDX-License-Identifier: Apache-2.0
//
// Measures the CPU time of a group with one small send and one small receive:
//
//   small_groups [GROUPS]
//
// It runs GROUPS groups ten times, with the NCCL and CUDA libraries that the loader finds. It
// prints the nanoseconds for each group, as the median of the ten runs.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {
namespace {

constexpr size_t kBytes = 1024;

bool Exchange(char* memory, ncclComm_t comm, CUstream stream) {
  return ncclGroupStart() == kNcclSuccess &&
         ncclSend(memory, kBytes, kNcclUint8, 1, comm, stream) == kNcclSuccess &&
         ncclRecv(memory + kBytes, kBytes, kNcclUint8, 1, comm, stream) == kNcclSuccess &&
         ncclGroupEnd() == kNcclSuccess;
}

int Main(int groups) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  ncclUniqueId id = {};
  ncclComm_t comm = nullptr;
  const bool ready =
      cuInit(0) == kCudaSuccess && cuDevicePrimaryCtxRetain(&context, 0) == kCudaSuccess &&
      cuCtxSetCurrent(context) == kCudaSuccess &&
      cuStreamCreate(&stream, kStreamNonBlocking) == kCudaSuccess &&
      cuMemAlloc_v2(&memory, 2 * kBytes) == kCudaSuccess && ncclGetUniqueId(&id) == kNcclSuccess &&
      ncclCommInitRank(&comm, 2, id, 0) == kNcclSuccess;
  if (!ready || groups < 1) {
    std::fputs("no CUDA, no NCCL, or no number of groups\n", stderr);
    return 1;
  }
  std::array<double, 10> ns = {};
  for (double& each : ns) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < groups; ++i) {
      if (!Exchange(reinterpret_cast<char*>(memory), comm, stream)) return 1;
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    each = took.count() / groups;
  }
  std::ranges::sort(ns);
  std::printf("%.1f\n", (ns[ns.size() / 2 - 1] + ns[ns.size() / 2]) / 2);
  return 0;
}

}  // namespace
}  // namespace nccltune::soft

int main(int count, char** words) {
  return nccltune::soft::Main(count > 1 ? std::atoi(words[1]) : 300'000);
}
