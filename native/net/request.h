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

// Size of a cache line. Data that several threads write should not share a cache line with data
// that others read.
inline constexpr size_t kCacheLine = 64;

// NCCL's limit of outstanding requests on one connection (NCCL_NET_MAX_REQUESTS since 2.19).
inline constexpr size_t kMostRequests = 32;
// Number of slots of a connection. There are more slots than requests: a message that NCCL has seen
// complete keeps its slot until the peer acknowledges the message.
inline constexpr size_t kSlots = 128;

// Detects that at least kDeep requests were outstanding within the last millisecond. NCCL then does
// not wait for a single request. NCCL has up to eight requests outstanding on a connection, one per
// step of its operation.
class RequestDepth {
 public:
  // Records that `held` requests are outstanding. The caller holds the connection's lock.
  void RecordHeld(size_t held) {
    if (held >= kDeep) deep_ns_.store(NowNs(), std::memory_order_relaxed);
  }
  bool IsDeep(int64_t now_ns) const {
    return now_ns - deep_ns_.load(std::memory_order_relaxed) < kNsPerMs;
  }

 private:
  static constexpr size_t kDeep = 6;
  std::atomic<int64_t> deep_ns_ = -kNsPerSecond;
};

// A request. NCCL holds a pointer to it while the transfer runs. This struct is the base of
// SendSlot and ReceiveSlot.
struct TransferRequest {
  Sender* sender = nullptr;  // set for a send; else `receiver` is set
  Receiver* receiver = nullptr;
  uint64_t number = 0;
  // Set when the data has been received, delivered or copied, and neither our threads nor the
  // kernel use the application's buffer any more.
  std::atomic<bool> complete = false;
  void* event = nullptr;  // the profiler's running event; used only by NCCL's calling threads
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_REQUEST_H_
