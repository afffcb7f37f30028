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
#include "net/flow_stats.h"
#include "net/slow_flow.h"
#include "net/stats_page.h"

namespace nccltune::net {

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
