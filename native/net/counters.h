// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_COUNTERS_H_
#define NCCLTUNE_NET_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace nccltune::net {

// Counters of one end of a connection. A request is sent in chunks over several flows (TCP
// connections). Other programs read this memory (stats_page.h), so new counters are added at the
// end.
struct Counters {
  std::atomic<uint64_t> requests = 0;  // requests started by NCCL
  std::atomic<uint64_t> messages = 0;  // requests that NCCL has seen complete
  std::atomic<uint64_t> bytes = 0;     // payload bytes of `messages`
  std::atomic<uint64_t> eager = 0;     // requests sent on the express flow; senders only
  std::atomic<uint64_t> chunks = 0;
  std::atomic<uint64_t> sent_again = 0;  // chunks resent because their flow died
  std::atomic<uint64_t> sent_twice =
      0;  // chunks that were late on one flow and sent on another too
  std::atomic<uint64_t> not_wanted = 0;    // duplicate chunks received
  std::atomic<uint64_t> stashed = 0;       // chunks received before their request was posted
  std::atomic<uint64_t> flow_ends = 0;     // flows that died
  std::atomic<uint64_t> flow_returns = 0;  // dead flows that reconnected
  // Sends with MSG_ZEROCOPY, as the kernel reported them.
  std::atomic<uint64_t> uncopied_bytes = 0;   // sent without a copy
  std::atomic<uint64_t> copy_reports = 0;     // sends that the kernel copied anyway
  std::atomic<uint64_t> zero_copy_drops = 0;  // flows that stopped using MSG_ZEROCOPY
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_COUNTERS_H_
