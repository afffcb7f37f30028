// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_REQUEST_H_
#define NCCLTUNE_NET_REQUEST_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "net/clock.h"

namespace nccltune::net {

class Sender;
class Receiver;

// What several threads write should not share one with what others read.
inline constexpr size_t kCacheLine = 64;

// NCCL's limit for one connection (NCCL_NET_MAX_REQUESTS since 2.19).
inline constexpr size_t kMostRequests = 32;
// Messages that are complete for the application and not acknowledged yet need a place, too.
inline constexpr size_t kSlots = 128;

// Whether an application has many requests outstanding, and so does not wait for any one of them.
// NCCL has up to eight on a connection, as many as its operation has steps.
class Depth {
 public:
  // With one more there are so many. By whoever has the lock.
  void Begun(size_t held) {
    if (held >= kDeep) deep_ns_.store(NowNs(), std::memory_order_relaxed);
  }
  bool Deep(int64_t now_ns) const {
    return now_ns - deep_ns_.load(std::memory_order_relaxed) < kNsPerMs;
  }

 private:
  static constexpr size_t kDeep = 6;
  std::atomic<int64_t> deep_ns_ = -kNsPerSecond;
};

// What NCCL holds while a transfer is under way: the beginning of a slot of its connection.
struct Request {
  Sender* sender = nullptr;  // or
  Receiver* receiver = nullptr;
  uint64_t number = 0;
  // Nothing of ours touches the application's buffer any more.
  std::atomic<bool> complete = false;
  void* event = nullptr;  // a profiler's, while it runs; theirs who call for NCCL
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_REQUEST_H_
