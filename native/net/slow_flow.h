// SPDX-License-Identifier: Apache-2.0
//
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
#ifndef NCCLTUNE_NET_SLOW_FLOW_H_
#define NCCLTUNE_NET_SLOW_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace nccltune::net {

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

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_SLOW_FLOW_H_
