// SPDX-License-Identifier: Apache-2.0
// A compute load that runs during the calls. Its kernels take about 100 us, keep every SM busy, and
// run back to back in their own stream. NCCL's kernels get SMs between two load kernels, and when
// blocks of a load kernel end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "bench/nccl/nccl_library.h"
#include "bench/step.h"

namespace nccltune::bench {

// All functions are called from the GPU's own thread, in the CUDA context of the GPU.
class ComputeLoad {
 public:
  ComputeLoad(const CudaLibrary& cuda, int rank) : cuda_(cuda), rank_(rank) {}
  // Must not be called while a kernel runs.
  ~ComputeLoad() { Release(); }
  ComputeLoad(const ComputeLoad&) = delete;
  ComputeLoad& operator=(const ComputeLoad&) = delete;

  // Compiles the kernel with the driver and calibrates its duration, on the first call only.
  std::optional<StepError> Open(cu::Device device);
  // Start enqueues the first kernels. From then on, call Feed about every millisecond. Feed
  // enqueues a new kernel for each kernel that has ended.
  std::optional<StepError> Start();
  std::optional<StepError> Feed();
  // Enqueues no more kernels and waits for the enqueued ones.
  std::optional<StepError> Stop();
  // Number of kernels that ended since Start, as of the last Feed.
  uint64_t ended() const { return ended_; }
  bool running() const { return running_; }
  void Release();

 private:
  static constexpr size_t kEnqueued = 32;

  std::optional<StepError> Launch();
  std::optional<StepError> Calibrate();
  std::optional<StepError> Check(cu::Result result, const char* what) const {
    return cuda_.Check(result, what, rank_);
  }

  const CudaLibrary& cuda_;
  const int rank_;
  cu::Module module_ = nullptr;
  cu::Function function_ = nullptr;
  cu::Stream stream_ = nullptr;
  cu::Pointer out_ = 0;
  std::array<cu::Event, kEnqueued> events_ = {};
  unsigned blocks_ = 0;
  unsigned rounds_ = 0;
  bool running_ = false;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace nccltune::bench
