// SPDX-License-Identifier: Apache-2.0
//
// Traffic during the calls: each rank repeatedly sends large messages to the next rank and receives
// from the previous rank. Traffic has its own stream and its own communicator.
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

// The functions are called from the GPU's own thread, in its CUDA context, unless stated otherwise.
// Between Start and Pause, a separate thread enqueues the exchanges. So an ncclGroupEnd that waits
// for a peer does not delay the timed calls, and the timed calls do not delay the exchanges.
class Traffic {
 public:
  // Polling interval. It is long enough to leave the CPU to the threads that poll for the timed
  // calls.
  static constexpr std::chrono::microseconds kPollInterval{50};

  // Every wait ends when `stop` becomes true.
  Traffic(const CudaLibrary& cuda, const NcclLibrary& nccl, int rank, int ranks,
          const std::atomic<bool>& stop)
      : cuda_(cuda), nccl_(nccl), rank_(rank), ranks_(ranks), stop_(stop) {}
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // Allocates the buffers for messages of that size. Returns kMemory, which is not fatal, if there
  // is not enough memory.
  std::optional<StepError> Reserve(size_t bytes);
  // Creates the communicator with the ranks of all processes.
  std::optional<StepError> Connect(const nccl::UniqueId& id);
  // Runs a few exchanges on all ranks, which create the connections and share the buffers with the
  // peers.
  std::optional<StepError> WarmUp(size_t bytes);

  std::optional<StepError> Start(cu::Context context, size_t bytes);
  // Number and total duration (us) of the exchanges that ended since Start, without the first one.
  struct Progress {
    uint64_t exchanges = 0;
    double us = 0;
  };
  Progress progress();
  // Returns the error that stopped the traffic; nullopt if there is none.
  std::optional<StepError> failure();

  // Stops beginning exchanges and sets *begun to the number begun since Start. Other ranks may have
  // begun more exchanges, which complete only after this rank has run them too; see Finish.
  std::optional<StepError> Pause(uint64_t* begun);
  // Begins exchanges up to `most`, the largest number of all ranks, and waits for all of them.
  std::optional<StepError> Finish(uint64_t most);

  std::optional<StepError> Close();
  // May be called from any thread.
  void Abort() noexcept;
  // Must not be called while an exchange runs.
  void Release();

 private:
  // Number of exchanges in the stream at once. It is large enough that the next exchange is ready
  // when one ends, and small enough that the wait at the end is short.
  static constexpr uint64_t kEnqueued = 4;

  void Loop();
  std::optional<StepError> ExchangeMessages();
  // Counts the exchanges that have ended.
  std::optional<StepError> Collect();
  std::optional<StepError> WaitUntil(uint64_t ended);
  std::optional<StepError> CudaCheck(cu::Result result, const char* what) const {
    return cuda_.Check(result, what, rank_);
  }

  const CudaLibrary& cuda_;
  const NcclLibrary& nccl_;
  const int rank_;
  const int ranks_;
  const std::atomic<bool>& stop_;
  std::atomic<nccl::Comm> comm_ = nullptr;
  cu::Context context_ = nullptr;
  cu::Stream stream_ = nullptr;
  // End events of the enqueued exchanges and of the exchange before them, in a ring buffer. The
  // duration of an exchange is the time since the previous end event.
  std::array<cu::Event, 2 * kEnqueued> events_ = {};
  cu::Pointer send_ = 0;
  cu::Pointer receive_ = 0;
  size_t reserved_ = 0;
  size_t bytes_ = 0;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  std::thread thread_;
  std::atomic<bool> pause_ = false;
  std::mutex mutex_;  // guards the two members below
  Progress progress_;
  std::optional<StepError> failure_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_TRAFFIC_H_
