// SPDX-License-Identifier: Apache-2.0
//
// The recorder of this process: the histograms of its communicators, and the file that has them.
//
// The files of this folder:
//   adapters        the exported function tables, one for each interface version
//   histogram       counts the calls of a communicator
//   launch_timer    times some of NCCL's kernels
//   next_profiler   passes events on to another profiler plugin
//   record_file     the text of the file, and its folder
//   recorder        the state of the process, and when the file is written
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/nccl_types.h"
#include "common/cuda_api.h"
#include "common/log.h"
#include "common/nccl_version.h"
#include "profiler/histogram.h"
#include "profiler/launch_timer.h"
#include "profiler/record_file.h"

namespace nccltune::profiler {

inline constexpr std::string_view kLogPrefix = "PROFILER/nccltune: ";

// Communicators that ended are kept, those of equal name, scale and rank as one. From this number
// on, further ones are only counted as lost.
inline constexpr size_t kMostEnded = 64;

// Seconds between looks at the file that asks for a write.
inline constexpr time_t kCheckSeconds = 10;

// A mutex that knows whether this thread holds it.
class OwnedMutex {
 public:
  void lock() {
    mutex_.lock();
    owner_ = pthread_self();
  }
  bool try_lock() {
    if (IsOwn() || !mutex_.try_lock()) return false;
    owner_ = pthread_self();
    return true;
  }
  void unlock() {
    owner_ = pthread_t{};
    mutex_.unlock();
  }
  bool IsOwn() const { return owner_ == pthread_self(); }

 private:
  std::mutex mutex_;
  std::atomic<pthread_t> owner_ = pthread_t{};
};

class Recorder {
 public:
  // Returns the recorder of this process, never destroyed; null if NCCLTUNE_RECORD is not set. A
  // forked child gets one of its own: the calls of its parent are in the parent's file. Throws only
  // std::bad_alloc.
  static Recorder* OfProcess(const Log& log);

  // Starts and ends a communicator. The histogram is the recorder's; End may delete it.
  Histogram* Begin(CommunicatorFacts facts);
  void End(const Histogram* histogram);

  WordTable& words() { return words_; }

  // Whether launches are timed. Does not change.
  bool is_timing() const { return is_timing_; }
  // Returns the timer of a communicator; null if its launches are not timed.
  std::unique_ptr<LaunchTimer> MakeTimer(uint64_t seed);

  // Writes the file if that is due or asked for. Costs a read of the clock otherwise.
  void CheckTime() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_sec >= next_check_.load(std::memory_order_relaxed)) CheckFile(now.tv_sec);
  }

  // Writes the file of this process, if it has a recorder: at its end. Gives up if a call that
  // exit interrupted in this thread, or one of another thread for 5 s, holds the recorder.
  static void WriteAtExit();

 private:
  Recorder();

  void Open(const Log& log);
  void DecideTimes(const Log& log, std::vector<std::string>* problems);
  void CheckFile(time_t now);
  void Write(bool ended);  // needs mutex_

  const pid_t pid_;
  const std::string folder_setting_;
  WordTable words_;
  std::atomic<time_t> next_check_ = 0;
  uint32_t one_in_ = 0;  // this and the next two are set by the first Open
  cu::Api cuda_;
  bool is_timing_ = false;
  std::atomic<bool> is_untimed_ = false;  // no launch is timed any more

  OwnedMutex mutex_;  // of all members below
  abi::LogFunction log_ = nullptr;
  RecordFile file_;
  time_t every_ = 0;
  time_t next_write_ = 0;
  time_t last_write_ = 0;
  time_t started_ = 0;
  std::optional<NcclVersion> nccl_;
  std::string untimed_;  // why
  bool is_open_ = false;
  bool has_warned_ = false;
  std::vector<std::unique_ptr<RecordedCommunicator>> running_;
  std::vector<std::unique_ptr<RecordedCommunicator>> ended_;
  LostCalls lost_;  // of communicators that were not kept
};

}  // namespace nccltune::profiler
