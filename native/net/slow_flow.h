// SPDX-License-Identifier: Apache-2.0
//
// Which flow of a connection is far slower than the other ones, and when to log that. Pure: times
// are arguments.
//
// A flow with few bytes is not necessarily slow: the other flows may have been fast enough to leave
// it nothing. If its bytes have reached the peer's kernel, a thread is late and the path is not at
// fault. A flow is slow if, for ten seconds:
// - it delivers less than a third of the median of the others,
// - it has bytes in flight in nearly all samples in which its connection had work,
// - the others transfer enough bytes that this is not chance.
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
  uint64_t path_samples = 0;  // samples in which its bytes were in flight
};

inline constexpr int64_t kSlowWindowNs = 5'000'000'000;

// Returns the median of the other flows' bytes; 0 if there is no other flow.
uint64_t MedianOfOthers(std::span<const FlowWork> flows, size_t which);

// Returns whether flow `which` is slow in one window.
bool IsSlow(std::span<const FlowWork> flows, size_t which);

struct SlowFlow {
  size_t which = 0;
  int64_t for_ns = 0;  // for how long it has been slow
  // Averages over the windows that led to the report.
  double bytes_per_s = 0;
  double others_bytes_per_s = 0;  // median
  double share = 0;               // share of all flows' bytes
};

class SlowFlowWatch {
 public:
  explicit SlowFlowWatch(size_t flows) : flows_(flows) {}

  // Returns whether a window has ended; then Judge must be called. Costs one comparison.
  bool Due(int64_t now_ns) const { return now_ns - since_ns_ >= kSlowWindowNs; }

  // Takes each flow's totals. Returns the flows to report: those that have become slow, each at
  // most once in ten minutes.
  std::vector<SlowFlow> Judge(int64_t now_ns, std::span<const FlowWork> totals);

 private:
  struct FlowState {
    FlowWork before;      // totals at the end of the last window
    FlowWork last;        // work in the last window
    int windows = 0;      // slow windows in a row
    int64_t slow_ns = 0;  // time since which it is slow
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
  // Returns the number of warnings suppressed since the last one, or nothing if this one must be
  // suppressed.
  std::optional<uint64_t> Take(int64_t now_ns);

 private:
  std::mutex mutex_;
  std::optional<int64_t> last_ns_;
  uint64_t suppressed_ = 0;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_SLOW_FLOW_H_
