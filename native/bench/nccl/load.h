// SPDX-License-Identifier: Apache-2.0
//
// Something to compute beside the calls: kernels of some 100 us that keep every SM busy, one behind
// the other in a stream of their own. Between them, and where one's blocks end, calls get theirs.
#ifndef NCCLTUNE_BENCH_NCCL_LOAD_H_
#define NCCLTUNE_BENCH_NCCL_LOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "bench/nccl/cuda_driver.h"
#include "bench/step.h"

namespace nccltune::bench {

// Called from the GPU's own thread, in its context.
class Load {
 public:
  Load(const CudaDriver& cuda, int rank) : cuda_(cuda), rank_(rank) {}
  // Not while a kernel runs.
  ~Load() { Release(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Once: compiles the kernel (the driver does) and finds how long it is to run.
  std::optional<StepError> Open(cuda::Device device);
  // Enqueues as many as there is room for. To be fed from then on, every millisecond or so.
  std::optional<StepError> Start();
  std::optional<StepError> Feed();
  // Waits for what is enqueued.
  std::optional<StepError> Stop();
  // Kernels that have ended since Start, as of the last Feed.
  uint64_t ended() const { return ended_; }
  bool running() const { return running_; }
  void Release();

 private:
  static constexpr size_t kEnqueued = 32;

  std::optional<StepError> Launch();
  std::optional<StepError> Calibrate();
  std::optional<StepError> Check(cuda::Result result, const char* what) const {
    return cuda_.Check(result, what, rank_);
  }

  const CudaDriver& cuda_;
  const int rank_;
  cuda::Module module_ = nullptr;
  cuda::Function function_ = nullptr;
  cuda::Stream stream_ = nullptr;
  cuda::DevicePointer out_ = 0;
  std::array<cuda::Event, kEnqueued> events_ = {};
  unsigned blocks_ = 0;
  unsigned rounds_ = 0;
  bool running_ = false;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_LOAD_H_
