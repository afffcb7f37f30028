// SPDX-License-Identifier: Apache-2.0
// Collectives of NCCL that may be in progress. Closing a handle of a peer's memory waits for all
// work of the GPU, and other threads can launch no kernel meanwhile (driver 580). A collective may
// wait for a peer that needs such a launch. So handles are closed only when no collective runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <shared_mutex>

namespace nccltune::sendrecv {

class CollectiveWork {
 public:
  static CollectiveWork& Get() {
    static CollectiveWork& work = *new CollectiveWork;
    return work;
  }

  // Whether handles wait to be closed. Then each collective gets an event (EnqueuedWork). Otherwise
  // only the time of the last one is noted, because an event would slow it down.
  bool tracked() const { return waiting_.load(std::memory_order_relaxed) != 0; }
  void AddWaiting(int64_t handles) { waiting_ += handles; }

  // A collective without an event. Counts as complete after 10 s.
  void NoteUntracked() {
    last_.store(checks_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // A captured collective may run whenever its graph does.
  void NoteCaptured() { captured_ = true; }
  // Called five times a second.
  void Tick() { ++checks_; }
  // Returns whether a collective without an event may be in progress.
  bool MayRun() const {
    const uint64_t last = last_.load();
    return captured_.load() || (last != 0 && checks_.load() - last <= kChecks);
  }

  // Held shared during a tracked collective's call, and exclusively while handles are closed.
  std::shared_mutex& calls() { return calls_; }

 private:
  static constexpr uint64_t kChecks = 50;

  std::atomic<int64_t> waiting_ = 0;
  std::atomic<uint64_t> checks_ = 1;
  std::atomic<uint64_t> last_ = 0;  // 0: there was none
  std::atomic<bool> captured_ = false;
  std::shared_mutex calls_;
};

}  // namespace nccltune::sendrecv
