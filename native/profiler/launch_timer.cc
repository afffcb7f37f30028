// SPDX-License-Identifier: Apache-2.0
#include "profiler/launch_timer.h"

namespace nccltune::profiler {

LaunchTimer::LaunchTimer(const cu::Api& cuda, uint32_t one_in, uint64_t seed,
                         const std::atomic<bool>* stopped)
    : cuda_(cuda), one_in_(one_in), stopped_(stopped), random_(seed | 1U), left_(NextGap()) {}

std::unique_ptr<LaunchTimer> LaunchTimer::Make(const cu::Api& cuda, uint32_t one_in, uint64_t seed,
                                               const std::atomic<bool>* stopped) {
  std::unique_ptr<LaunchTimer> timer(new LaunchTimer(cuda, one_in, seed, stopped));
  for (Launch& launch : timer->launches_) {
    launch.timer = timer.get();
    for (cu::Event* const event : {&launch.before, &launch.after}) {
      if (cuda.EventCreate(event, cu::kEventDefault) != cu::kSuccess) {
        *event = nullptr;
        return nullptr;
      }
    }
  }
  return timer;
}

LaunchTimer::~LaunchTimer() {
  Collect();
  for (const Launch& launch : launches_) {
    for (cu::Event event : {launch.before, launch.after}) {
      if (event != nullptr) cuda_.EventDestroy(event);
    }
  }
}

uint32_t LaunchTimer::NextGap() {
  // Evenly from 1 to 2 * one_in - 1: a job repeats its calls, and a fixed step would time the same
  // ones in each period.
  random_ ^= random_ << 13U;
  random_ ^= random_ >> 7U;
  random_ ^= random_ << 17U;
  return 1 + static_cast<uint32_t>((random_ >> 16U) % (2 * uint64_t{one_in_} - 1));
}

void* LaunchTimer::StartTimed(cu::Stream stream) {
  left_ = NextGap();
  if (stopped_->load(std::memory_order_relaxed)) return nullptr;
  Collect();
  if (end_ - first_ == kPending) return nullptr;
  Launch& launch = launches_[end_ % kPending];
  int captured = cu::kCaptureNone;
  if (cuda_.StreamIsCapturing(stream, &captured) != cu::kSuccess || captured != cu::kCaptureNone ||
      cuda_.EventRecord(launch.before, stream) != cu::kSuccess) {
    return nullptr;
  }
  launch.stream = stream;
  launch.tasks = 0;
  launch.has_all_rows = true;
  return &launch;
}

void LaunchTimer::Stop(void* handle) {
  const Launch& launch = *static_cast<Launch*>(handle);
  LaunchTimer& timer = *launch.timer;
  if (timer.cuda_.EventRecord(launch.after, launch.stream) != cu::kSuccess) return;
  ++timer.end_;
  timer.opened_by_.store(pthread_self(), std::memory_order_relaxed);
}

void LaunchTimer::AddTimedTask(Slot* row) {
  Launch& launch = launches_[(end_ - 1) % kPending];
  if (row == nullptr || launch.tasks == kTasks) {
    launch.has_all_rows = false;
  } else {
    launch.rows[launch.tasks++] = row;
  }
}

void LaunchTimer::Collect() {
  if (first_ == end_) return;
  // Else a capture of any thread could end when this one asks for an event.
  int mode = cu::kCaptureRelaxed;
  cuda_.ThreadExchangeStreamCaptureMode(&mode);
  for (; first_ != end_; ++first_) {
    const Launch& launch = launches_[first_ % kPending];
    const cu::Result result = cuda_.EventQuery(launch.after);
    if (result == cu::kNotReady) break;
    if (result == cu::kSuccess) AddTimes(launch);
  }
  cuda_.ThreadExchangeStreamCaptureMode(&mode);
}

void LaunchTimer::AddTimes(const Launch& launch) const {
  float milliseconds = 0;
  if (!launch.has_all_rows || launch.tasks == 0 ||
      cuda_.EventElapsedTime(&milliseconds, launch.before, launch.after) != cu::kSuccess ||
      !(milliseconds >= 0)) {
    return;
  }
  // By bytes, so that the times of all rows add up to the time of all kernels.
  double bytes = 0;
  for (size_t i = 0; i < launch.tasks; ++i) bytes += static_cast<double>(launch.rows[i]->bytes);
  for (size_t i = 0; i < launch.tasks; ++i) {
    const double share = bytes > 0 ? static_cast<double>(launch.rows[i]->bytes) / bytes
                                   : 1.0 / static_cast<double>(launch.tasks);
    // Rounded without lround, which is in a library that a profiler would load.
    constexpr double kHalf = 0.5;
    launch.rows[i]->AddDuration(static_cast<uint64_t>(double{milliseconds} * 1e6 * share + kHalf));
  }
}

}  // namespace nccltune::profiler
