// SPDX-License-Identifier: Apache-2.0
//
// Counters of one flow (one TCP connection of an NCCL connection) in shared memory. Only one thread
// at a time serves the flow and writes the counters; any thread or process may read them.
#ifndef NCCLTUNE_NET_FLOW_STATS_H_
#define NCCLTUNE_NET_FLOW_STATS_H_

#include <cstdint>

#include "net/stats_page.h"

namespace nccltune::net {

class FlowStats {
 public:
  explicit FlowStats(FlowBlock& block) : block_(block) {}

  // The next five functions are on the data path, so they use only relaxed loads and stores.
  void AddTransferred(uint64_t bytes, uint64_t chunks) {
    Add(block_.bytes, bytes);
    Add(block_.chunks, chunks);
  }
  void SetUndelivered(uint64_t bytes) { Set(block_.undelivered, bytes); }
  void SetRate(double bytes_per_s) { Set(block_.rate, static_cast<uint64_t>(bytes_per_s)); }
  void TookOver() { Add(block_.taken_over, 1); }
  void Duplicate() { Add(block_.duplicates, 1); }

  // Records that the flow is up, with the socket `fd`.
  void CameUp(int fd);
  // Records that the flow is down. `died`: the flow ended without a bye, the frame that ends a flow
  // regularly.
  void WentDown(bool died);
  // Counts a reconnect attempt after the death of a flow. Attempts after a regular end are not
  // counted: they only check whether the peer still listens.
  void Dialled() {
    if (died_) Add(block_.dials, 1);
  }

  // Samples the socket. Called periodically. `busy`: the connection has data to send or waits for
  // an acknowledgement.
  void Sample(int64_t now_ns, int fd, bool busy);

 private:
  static void Set(Word& word, uint64_t value) { word.store(value, std::memory_order_relaxed); }
  static void Add(Word& word, uint64_t more) {
    Set(word, word.load(std::memory_order_relaxed) + more);
  }

  FlowBlock& block_;
  bool died_ = false;
  int64_t path_ns_ = 0;  // time of the last ReadPathFacts
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_FLOW_STATS_H_
