// SPDX-License-Identifier: Apache-2.0
//
// Large messages beside the calls: each rank sends to the next one and receives from the one
// before, again and again, in a stream and on a communicator of its own.
#ifndef NCCLTUNE_BENCH_NCCL_TRAFFIC_H_
#define NCCLTUNE_BENCH_NCCL_TRAFFIC_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "bench/nccl/cuda_driver.h"
#include "bench/nccl/nccl_library.h"
#include "bench/step.h"

namespace nccltune::bench {

// Called from the GPU's own thread, in its context, unless said otherwise. Between Start and Pause
// a thread of its own enqueues the exchanges: an ncclGroupEnd that waits for a peer keeps no call
// waiting, nor the other way round.
class Traffic {
 public:
  // How often it is looked at, which is not to take the CPU from those that poll.
  static constexpr std::chrono::microseconds kLook{50};

  // `stop` ends every wait.
  Traffic(const CudaDriver& cuda, const NcclLibrary& nccl, int rank, int ranks,
          const std::atomic<bool>& stop)
      : cuda_(cuda), nccl_(nccl), rank_(rank), ranks_(ranks), stop_(stop) {}
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // Buffers for messages of so many bytes. kMemory, not fatal, where there is no room.
  std::optional<StepError> Reserve(size_t bytes);
  // With the ranks of all processes.
  std::optional<StepError> Connect(const nccl::UniqueId& id);
  // A few exchanges, on all ranks: connections are made, and buffers known to peers.
  std::optional<StepError> WarmUp(size_t bytes);

  std::optional<StepError> Start(cuda::Context context, size_t bytes);
  // Of the exchanges since Start that ended behind another: how many, and how long they took.
  struct Progress {
    uint64_t exchanges = 0;
    double us = 0;
  };
  Progress progress();
  // Why it has stopped by itself.
  std::optional<StepError> failure();

  // No more are begun; told is how many have been since Start. Other ranks may have begun more, and
  // theirs end when this rank has done its part.
  std::optional<StepError> Pause(uint64_t* begun);
  // Begins the rest up to `most`, the most of all ranks, and waits for all.
  std::optional<StepError> Finish(uint64_t most);

  std::optional<StepError> Close();
  // From any thread.
  void Abort() noexcept;
  // Not while an exchange runs.
  void Release();

 private:
  // So that the next one is there when one ends, and few are left at the end.
  static constexpr uint64_t kEnqueued = 4;

  void Go();
  std::optional<StepError> Exchange();
  // Takes in what has ended.
  std::optional<StepError> Collect();
  std::optional<StepError> WaitUntil(uint64_t ended);
  std::optional<StepError> CudaCheck(cuda::Result result, const char* what) const {
    return cuda_.Check(result, what, rank_);
  }

  const CudaDriver& cuda_;
  const NcclLibrary& nccl_;
  const int rank_;
  const int ranks_;
  const std::atomic<bool>& stop_;
  std::atomic<nccl::Comm> comm_ = nullptr;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  // Of the ends of exchanges: those that are enqueued, and the one before them.
  std::array<cuda::Event, 2 * kEnqueued> events_ = {};
  cuda::DevicePointer send_ = 0;
  cuda::DevicePointer receive_ = 0;
  size_t reserved_ = 0;
  size_t bytes_ = 0;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  std::thread thread_;
  std::atomic<bool> pause_ = false;
  std::mutex mutex_;  // of the two below
  Progress progress_;
  std::optional<StepError> failure_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_TRAFFIC_H_
