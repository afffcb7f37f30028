// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace nccltune::bench {
namespace {

// The caller and the threads spin this long before they sleep, because a step with small messages
// is shorter than the time to wake a thread.
constexpr std::chrono::microseconds kSpinTime{60};

template <typename Condition>
void SpinUntil(const Condition& condition) {
  const Team::Clock::time_point end = Team::Clock::now() + kSpinTime;
  while (!condition() && Team::Clock::now() < end) sched_yield();
}

}  // namespace

struct Team::Shared {
  explicit Shared(size_t members) : busy(members, false) {}

  mutable std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  std::shared_ptr<const Task> task;
  std::vector<bool> busy;
  std::atomic<uint64_t> round = 0;
  std::atomic<size_t> running = 0;
  std::atomic<bool> quit = false;
  bool end_soon = false;
  std::vector<std::thread> threads;
};

Team::Team(size_t members) : shared_(std::make_shared<Shared>(members)) {
  for (size_t member = 0; member < members; ++member) {
    shared_->threads.emplace_back([shared = shared_, member] { Loop(shared, member); });
  }
}

Team::~Team() {
  std::vector<std::thread> threads;
  std::vector<bool> busy;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->quit = true;
    threads.swap(shared_->threads);
    busy = shared_->busy;
  }
  shared_->work.notify_all();
  for (size_t member = 0; member < threads.size(); ++member) {
    if (busy[member]) {
      threads[member].detach();
    } else {
      threads[member].join();
    }
  }
}

void Team::Loop(const std::shared_ptr<Shared>& shared, size_t member) {
  for (uint64_t seen = 0;;) {
    const auto has_work = [&shared, seen] { return shared->quit || shared->round != seen; };
    SpinUntil(has_work);
    std::shared_ptr<const Task> task;
    {
      std::unique_lock<std::mutex> lock(shared->mutex);
      shared->work.wait(lock, has_work);
      if (shared->quit) return;
      seen = shared->round;
      task = shared->task;
    }
    (*task)(member);
    task.reset();
    const std::lock_guard<std::mutex> lock(shared->mutex);
    shared->busy[member] = false;
    --shared->running;
    shared->done.notify_all();
  }
}

bool Team::Run(Task task, Clock::time_point deadline) {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->task = std::make_shared<const Task>(std::move(task));
    std::fill(shared_->busy.begin(), shared_->busy.end(), true);
    shared_->end_soon = false;
    shared_->running = shared_->busy.size();
    ++shared_->round;
  }
  shared_->work.notify_all();
  const auto all_done = [this] { return shared_->running == 0; };
  SpinUntil(all_done);
  std::unique_lock<std::mutex> lock(shared_->mutex);
  const auto done_or_end_soon = [this, &all_done] { return all_done() || shared_->end_soon; };
  shared_->done.wait_until(lock, deadline, done_or_end_soon);
  if (!all_done() && shared_->end_soon) {
    shared_->done.wait_until(lock, std::min(deadline, Clock::now() + kEndSoonLimit), all_done);
  }
  shared_->task.reset();
  return all_done();
}

void Team::EndSoon() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->end_soon = true;
  shared_->done.notify_all();
}

bool Team::WaitIdle(std::chrono::milliseconds longest) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  return shared_->done.wait_for(lock, longest, [this] { return shared_->running == 0; });
}

size_t Team::FirstBusy() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return static_cast<size_t>(std::find(shared_->busy.begin(), shared_->busy.end(), true) -
                             shared_->busy.begin());
}

}  // namespace nccltune::bench
