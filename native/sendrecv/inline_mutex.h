// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_INLINE_MUTEX_H_
#define NCCLTUNE_SENDRECV_INLINE_MUTEX_H_

#include <atomic>
#include <cstdint>

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

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_INLINE_MUTEX_H_
