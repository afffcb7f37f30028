// SPDX-License-Identifier: Apache-2.0
// Counters of one end of a connection, and the log lines made from them: a warning for a slow flow,
// and a summary at the end. A flow is one TCP connection. Each connection has one express flow for
// small messages and several bulk flows for large ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/log.h"
#include "net/stats_page.h"

namespace nccltune::net {

// Finds flows of a connection that are far slower than the other flows, and decides when to log
// that. A flow is one TCP connection; several flows form one connection of NCCL. Times are
// arguments, so that tests need no clock.
//
// A flow with few bytes is not necessarily slow: the other flows may have left no data for it. If
// the peer's kernel has acknowledged the flow's bytes, a thread is late, and not the path. A flow
// is slow if all of this is true in two windows of five seconds, one directly after the other:
// - The flow delivers less than a third of the median of the other flows.
// - The flow has bytes in flight in at least 60 % of the samples. Samples are taken while the
//   connection has work.
// - The median of the other flows is at least 16 MiB in a window, which excludes chance.

// The work of one flow, in total or within a window.
struct FlowWork {
  uint64_t bytes = 0;         // delivered
  uint64_t samples = 0;       // samples taken while the connection had work
  uint64_t path_samples = 0;  // samples with bytes of this flow in flight
};

inline constexpr int64_t kSlowWindowNs = 5'000'000'000;

// Returns the median of the other flows' bytes; 0 if there is no other flow.
uint64_t MedianOfOthers(std::span<const FlowWork> flows, size_t which);

// Returns whether flow `which` is slow within one window. `flows` is the work of all flows in the
// window.
bool IsSlow(std::span<const FlowWork> flows, size_t which);

struct SlowFlow {
  size_t which = 0;
  int64_t for_ns = 0;  // how long the flow has been slow
  // Averages over the last two windows.
  double bytes_per_s = 0;
  double others_bytes_per_s = 0;  // median
  double share = 0;               // share of all flows' bytes
};

class SlowFlowWatch {
 public:
  explicit SlowFlowWatch(size_t flows) : flows_(flows) {}

  // Returns whether a window has ended. Then Judge must be called. Costs one comparison.
  bool Due(int64_t now_ns) const { return now_ns - since_ns_ >= kSlowWindowNs; }

  // Ends a window. `totals` are the totals of each flow. Returns the flows to report: those that
  // were slow in this window and the one before. A flow is reported at most once in ten minutes.
  std::vector<SlowFlow> Judge(int64_t now_ns, std::span<const FlowWork> totals);

 private:
  struct FlowState {
    FlowWork before;      // totals at the end of the last window
    FlowWork last;        // work in the last window
    int windows = 0;      // slow windows in a row
    int64_t slow_ns = 0;  // time since which the flow is slow
    std::optional<int64_t> reported_ns;
  };
  std::vector<FlowState> flows_;
  int64_t since_ns_ = 0;
  int64_t last_ns_ = 0;  // length of the last window
};

// Limits the warnings of all connections of a process to one a minute. One bad link causes a slow
// flow in every process of a cluster.
class WarningBudget {
 public:
  // Returns the number of warnings suppressed since the last logged one. Returns nothing if this
  // warning must be suppressed too.
  std::optional<uint64_t> Take(int64_t now_ns);

 private:
  std::mutex mutex_;
  std::optional<int64_t> last_ns_;
  uint64_t suppressed_ = 0;
};

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
