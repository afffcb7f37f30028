// SPDX-License-Identifier: Apache-2.0
// Stores the first failure of this process. Any thread may report a failure.
#ifndef NCCLTUNE_HOST_NET_FIRST_FAILURE_H_
#define NCCLTUNE_HOST_NET_FIRST_FAILURE_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "host/net/clock.h"

namespace nccltune::host::net {

class FirstFailure {
 public:
  // Stores the text if no failure is stored yet. Always returns false, so that callers can return
  // the result.
  bool Fail(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.load(std::memory_order_relaxed)) {
      text_ = std::move(text);
      at_ns_ = NowNs();
      failed_.store(true, std::memory_order_release);
    }
    return false;
  }

  // Stores a failure of the other process if no failure is stored yet, or if the stored failure is
  // later.
  void Adopt(std::string text, int64_t at_ns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_.load(std::memory_order_relaxed) && at_ns_ <= at_ns) return;
    text_ = std::move(text);
    at_ns_ = at_ns;
    failed_.store(true, std::memory_order_release);
  }

  bool ok() const { return !failed_.load(std::memory_order_acquire); }

  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

  // Returns the time of the failure on the monotonic clock, which all processes of a machine share.
  int64_t at_ns() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return at_ns_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::string text_;
  int64_t at_ns_ = 0;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_FIRST_FAILURE_H_
