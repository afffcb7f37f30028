// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace nccltune::sendrecv {

// Like std::mutex, but an uncontended lock calls no library function. If a program computes between
// its calls, such a function is no longer in the cache. Fetching it would cost more than the lock
// itself.
class InlineMutex {
 public:
  bool try_lock() {
    State expected = State::kFree;
    return state_.compare_exchange_strong(expected, State::kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() {
    if (!try_lock()) Wait();
  }
  bool try_lock_until(std::chrono::steady_clock::time_point limit) {
    while (!try_lock()) {
      if (std::chrono::steady_clock::now() >= limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  void unlock() {
    if (state_.exchange(State::kFree, std::memory_order_release) == State::kAwaited) {
      state_.notify_one();
    }
  }

 private:
  // kAwaited: the mutex is held, and another thread may be waiting for it.
  enum class State : int32_t { kFree, kHeld, kAwaited };

  [[gnu::cold]] [[gnu::noinline]] void Wait() {
    while (state_.exchange(State::kAwaited, std::memory_order_acquire) != State::kFree) {
      state_.wait(State::kAwaited, std::memory_order_relaxed);
    }
  }

  std::atomic<State> state_ = State::kFree;
};

// Runs a function once in a process while other threads wait, for a limited time. If the process is
// forked while the function runs, the running thread does not exist in the child, and the next
// caller in the child runs the function again. std::call_once would wait for ever in that child.
class Once {
 public:
  // Returns false if another thread has not completed the function after `patience`. That thread
  // may wait for a lock that the caller holds, such as the dynamic loader's.
  template <typename Work>
  bool Do(const Work& work, std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (true) {
      int runner = runner_.load(std::memory_order_acquire);
      if (runner == kDone) return true;
      const int self = getpid();
      if (runner == self) {
        if (std::chrono::steady_clock::now() > until) return false;
        sched_yield();
        continue;
      }
      if (!runner_.compare_exchange_strong(runner, self, std::memory_order_acq_rel)) continue;
      work();
      runner_.store(kDone, std::memory_order_release);
      return true;
    }
  }

 private:
  static constexpr int kNone = 0;
  static constexpr int kDone = -1;

  std::atomic<int> runner_ = kNone;
};

}  // namespace nccltune::sendrecv
