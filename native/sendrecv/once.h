// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_ONCE_H_
#define NCCLTUNE_SENDRECV_ONCE_H_

#include <sched.h>
#include <unistd.h>

#include <atomic>

namespace nccltune::sendrecv {

// Something that is done once in a process, by the thread that needs it first while others wait.
// In a process that was forked meanwhile that thread is not there: the next one does it again,
// which std::call_once would wait for.
class Once {
 public:
  template <typename Work>
  void Do(const Work& work) {
    while (true) {
      int doer = doer_.load(std::memory_order_acquire);
      if (doer == kDone) return;
      const int self = getpid();
      if (doer == self) {
        sched_yield();
        continue;
      }
      if (!doer_.compare_exchange_strong(doer, self, std::memory_order_acq_rel)) continue;
      work();
      doer_.store(kDone, std::memory_order_release);
      return;
    }
  }

 private:
  static constexpr int kNobody = 0;
  static constexpr int kDone = -1;

  std::atomic<int> doer_ = kNobody;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ONCE_H_
