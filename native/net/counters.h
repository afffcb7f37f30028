// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_COUNTERS_H_
#define NCCLTUNE_NET_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace nccltune::net {

// Of one end of a connection. It stands in memory that other programs read (stats_page.h): what is
// new comes last.
struct Counters {
  std::atomic<uint64_t> requests = 0;  // that NCCL was given
  std::atomic<uint64_t> messages = 0;  // that NCCL heard the end of
  std::atomic<uint64_t> bytes = 0;     // of these
  std::atomic<uint64_t> eager = 0;     // requests on the express flow; only a sender knows
  std::atomic<uint64_t> chunks = 0;
  std::atomic<uint64_t> sent_again = 0;    // chunks that a dead flow owed
  std::atomic<uint64_t> sent_twice = 0;    // chunks that were late on another flow
  std::atomic<uint64_t> not_wanted = 0;    // chunks that had arrived already
  std::atomic<uint64_t> stashed = 0;       // chunks read before their request was posted
  std::atomic<uint64_t> flow_ends = 0;     // flows that died
  std::atomic<uint64_t> flow_returns = 0;  // and came back
  // Of MSG_ZEROCOPY, as the kernel reports it.
  std::atomic<uint64_t> uncopied_bytes = 0;   // read where they lay
  std::atomic<uint64_t> copy_reports = 0;     // sends that the kernel copied all the same
  std::atomic<uint64_t> zero_copy_drops = 0;  // flows that copy for good since they tried
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_COUNTERS_H_
