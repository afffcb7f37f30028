// SPDX-License-Identifier: Apache-2.0
// Records the plugin function that each thread is currently in, so that another thread can detect a
// call that never returns.
#ifndef NCCLTUNE_HOST_NET_CALL_WATCH_H_
#define NCCLTUNE_HOST_NET_CALL_WATCH_H_

#include <atomic>
#include <cstdint>

namespace nccltune::host::net {

struct CallSlot {
  std::atomic<const char*> name{nullptr};  // null: in no plugin function
  std::atomic<uint64_t> calls{0};
};

// The slot of the calling thread. If the slot is null, calls of this thread are not recorded.
inline thread_local CallSlot* this_threads_slot = nullptr;

class CallScope {
 public:
  explicit CallScope(const char* name) : slot_(this_threads_slot) {
    if (slot_ == nullptr) return;
    // Only this thread writes, so no atomic read-modify-write is needed.
    slot_->calls.store(slot_->calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    slot_->name.store(name, std::memory_order_relaxed);
  }
  ~CallScope() {
    if (slot_ != nullptr) slot_->name.store(nullptr, std::memory_order_relaxed);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  CallSlot* slot_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_CALL_WATCH_H_
