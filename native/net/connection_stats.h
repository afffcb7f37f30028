// SPDX-License-Identifier: Apache-2.0
//
// Counters of one end of a connection, and the log lines made from them: a warning for a slow flow,
// and a summary at the end. A flow is one TCP connection. Each connection has one express flow for
// small messages and several bulk flows for large ones.
#ifndef NCCLTUNE_NET_CONNECTION_STATS_H_
#define NCCLTUNE_NET_CONNECTION_STATS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/log.h"
#include "net/slow_flow.h"
#include "net/stats_page.h"

namespace nccltune::net {

// Counters of one flow (one TCP connection of an NCCL connection) in shared memory. Only one thread
// at a time serves the flow and writes the counters; any thread or process may read them.
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

class ConnectionStats {
 public:
  // `flows` is the number of flows, including the express flow.
  ConnectionStats(StatsRole role, const Log& log, const std::string& device,
                  const std::string& peer, size_t flows);
  // Logs the summary.
  ~ConnectionStats();
  ConnectionStats(const ConnectionStats&) = delete;
  ConnectionStats& operator=(const ConnectionStats&) = delete;

  const StatsPage& page() const { return page_; }
  Counters& counters() { return page_.connection().counters; }

  // Returns the counters of the next flow. Flows are created in this order: the bulk flows, then
  // the express flow.
  FlowStats NextFlow();

  // Logs a line for each slow flow if a check is due. Called periodically, by any thread. Does
  // nothing while another thread checks.
  void Tick(int64_t now_ns) noexcept;

  // Returns the summary for the log.
  std::string Summary(int64_t now_ns) const;

 private:
  void WarnOfSlowFlows(int64_t now_ns);
  std::string SlowText(const SlowFlow& slow) const;

  Log log_;
  StatsPage page_;
  size_t made_ = 0;
  std::atomic_flag judging_;
  SlowFlowWatch watch_;
};

// Return a number with its unit, rounded to about three digits: "987 B", "1.24 GiB", "210 MB/s".
std::string SizeText(uint64_t bytes);
std::string SpeedText(double bytes_per_s);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_CONNECTION_STATS_H_
