// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_ONCE_H_
#define NCCLTUNE_SENDRECV_ONCE_H_

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace nccltune::sendrecv {

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

#endif  // NCCLTUNE_SENDRECV_ONCE_H_
