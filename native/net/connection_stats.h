// SPDX-License-Identifier: Apache-2.0
//
// What is counted of one end of a connection, and what the log says of it: a warning for a slow
// flow, and one line at the end.
#ifndef NCCLTUNE_NET_CONNECTION_STATS_H_
#define NCCLTUNE_NET_CONNECTION_STATS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/log.h"
#include "net/flow_stats.h"
#include "net/slow_flow.h"
#include "net/stats_page.h"

namespace nccltune::net {

class ConnectionStats {
 public:
  // `flows` with the express one.
  ConnectionStats(StatsRole role, const Log& log, const std::string& device,
                  const std::string& peer, size_t flows);
  // Says what was moved.
  ~ConnectionStats();
  ConnectionStats(const ConnectionStats&) = delete;
  ConnectionStats& operator=(const ConnectionStats&) = delete;

  const StatsPage& page() const { return page_; }
  Counters& counters() { return page_.connection().counters; }

  // Each flow's, in the order in which both ends make them: the bulk flows, then the express one.
  FlowStats NextFlow();

  // From time to time, from any thread.
  void Tick(int64_t now_ns) noexcept;

  // What the log says at the end.
  std::string Summary(int64_t now_ns) const;

 private:
  void TellSlowFlows(int64_t now_ns);
  std::string SlowText(const SlowFlow& slow) const;

  Log log_;
  StatsPage page_;
  size_t made_ = 0;
  std::atomic_flag judging_;
  SlowFlowWatch watch_;
};

// 987 B, 1.24 GiB; 210 MB/s, 1.21 GB/s: three digits that count.
std::string SizeText(uint64_t bytes);
std::string SpeedText(double bytes_per_s);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_CONNECTION_STATS_H_
