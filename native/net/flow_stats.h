// SPDX-License-Identifier: Apache-2.0
//
// What a flow tells of itself. Whoever serves the flow writes, one thread at a time; anybody reads.
#ifndef NCCLTUNE_NET_FLOW_STATS_H_
#define NCCLTUNE_NET_FLOW_STATS_H_

#include <cstdint>

#include "net/stats_page.h"

namespace nccltune::net {

class FlowStats {
 public:
  explicit FlowStats(FlowBlock& block) : block_(block) {}

  // The data path: plain loads and stores.
  void Moved(uint64_t bytes, uint64_t chunks) {
    Add(block_.bytes, bytes);
    Add(block_.chunks, chunks);
  }
  void SetUndelivered(uint64_t bytes) { Set(block_.undelivered, bytes); }
  void SetRate(double bytes_per_s) { Set(block_.rate, static_cast<uint64_t>(bytes_per_s)); }
  void TookOver() { Add(block_.taken_over, 1); }
  void Duplicate() { Add(block_.duplicates, 1); }

  // The socket that carries it from now on.
  void CameUp(int fd);
  // `died`: nobody meant it.
  void WentDown(bool died);
  // After an end that was meant, it only asks whether anybody is there.
  void Dialled() {
    if (died_) Add(block_.dials, 1);
  }

  // From time to time. `busy`: the connection has something to send or is owed an acknowledgement.
  void Look(int64_t now_ns, int fd, bool busy);

 private:
  static void Set(Word& word, uint64_t value) { word.store(value, std::memory_order_relaxed); }
  static void Add(Word& word, uint64_t more) {
    Set(word, word.load(std::memory_order_relaxed) + more);
  }

  FlowBlock& block_;
  bool died_ = false;
  int64_t path_ns_ = 0;  // when the kernel was asked of the path
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_FLOW_STATS_H_
