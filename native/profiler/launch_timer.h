// SPDX-License-Identifier: Apache-2.0
//
// Times some of the kernels that NCCL launches for a communicator, by CUDA events that the stream
// passes before and after them.
//
// Why not by NCCL's own timestamps (kProfileKernelChannel), switched on for some calls by the mask:
// NCCL counts the work of each channel on the GPU and, for the same number, on the host. The host
// does not count what a CUDA graph replays, nor broadcasts since 2.29 (nccl#2368). A timed call
// then has the time of another one, or none: NCCL's thread waits for it forever, and
// ncclCommDestroy with it. A call that is captured while the bit is set is such a call, and no
// plugin can know before NCCL reads the mask that it will be captured. Read in 2.28.9:
// proxy.cc:546-560 and 990, transport/profiler.cc:35-43, enqueue.cc:2460-2486.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/cuda_api.h"
#include "common/nccl_version.h"
#include "profiler/histogram.h"

namespace nccltune::profiler {

// Whether a release of NCCL reports launches and their tasks as the timer needs them: the launch
// around the one kernel, the tasks after it. Sources of 2.28.3 to 2.30.7 were read, and the copies
// of 2.31 and 2.32 in torchcomms.
constexpr bool ReportsLaunches(const NcclVersion& nccl) {
  return nccl >= NcclVersion{2, 28, 3} && nccl < NcclVersion{2, 33, 0};
}

// NCCL's calls for one communicator are never concurrent. So no member but that of AddTask is
// either, which a thread of the driver may call for the replay of a CUDA graph.
class LaunchTimer {
 public:
  // Times one in `one_in` launches. Until `*stopped`; all events that it needs are made here.
  // Returns null if CUDA has none. `cuda` and `stopped` must stay.
  static std::unique_ptr<LaunchTimer> Make(const cu::Api& cuda, uint32_t one_in, uint64_t seed,
                                           const std::atomic<bool>* stopped);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // A launch begins. Returns what Stop needs if it is timed, else null.
  void* Start(cu::Stream stream) {
    EndTasks();
    if (left_ > 1) {
      --left_;
      return nullptr;
    }
    return StartTimed(stream);
  }
  // The launch of a handle ends. Without this the launch is not timed.
  static void Stop(void* handle);
  // No further task of an earlier launch follows: another one, or a call of the program.
  void EndTasks() { opened_by_.store(pthread_t{}, std::memory_order_relaxed); }
  // A task of the launch that ended last has this row, or none of its own (null).
  void AddTask(Slot* row) {
    if (pthread_equal(opened_by_.load(std::memory_order_relaxed), pthread_self()) != 0) {
      AddTimedTask(row);
    }
  }

 private:
  // With more launches than this still to run, further ones are not timed.
  static constexpr size_t kPending = 16;
  // The tasks of a launch share its time; one with more is not timed.
  static constexpr size_t kTasks = 64;

  struct Launch {
    LaunchTimer* timer = nullptr;
    cu::Stream stream = nullptr;
    cu::Event before = nullptr;
    cu::Event after = nullptr;
    size_t tasks = 0;
    bool has_all_rows = true;
    std::array<Slot*, kTasks> rows{};
  };

  LaunchTimer(const cu::Api& cuda, uint32_t one_in, uint64_t seed,
              const std::atomic<bool>* stopped);

  void* StartTimed(cu::Stream stream);
  void AddTimedTask(Slot* row);
  void Collect();
  void AddTimes(const Launch& launch) const;
  uint32_t NextGap();

  const cu::Api& cuda_;
  const uint32_t one_in_;
  const std::atomic<bool>* const stopped_;
  uint64_t random_;
  uint32_t left_;                            // launches until one is timed
  std::atomic<pthread_t> opened_by_;         // the thread of the launch whose tasks follow
  size_t first_ = 0;                         // of the launches whose time is not known yet
  size_t end_ = 0;                           // they are launches_[i % kPending]
  std::array<Launch, kPending> launches_{};  // all with their events
};

}  // namespace nccltune::profiler
