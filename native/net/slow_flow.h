// SPDX-License-Identifier: Apache-2.0
//
// Which flow of a connection is far slower than its sisters, and when that is worth a line in the
// log. Pure: times are given.
//
// A flow with few bytes is no slow one: the others may have been quick enough to leave it nothing.
// Neither is one whose bytes are in the peer's kernel already: there a thread is behind, which the
// path can do nothing for. Slow is one that delivers less than a third of what its sisters do
// (their median) though it had bytes between the two kernels nearly all the time that its
// connection had work, for ten seconds of it, in which the sisters moved enough for chance to be no
// cause.
#ifndef NCCLTUNE_NET_SLOW_FLOW_H_
#define NCCLTUNE_NET_SLOW_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace nccltune::net {

// Of one flow: since it began, or within a window.
struct FlowWork {
  uint64_t bytes = 0;       // delivered
  uint64_t looks = 0;       // while the connection had work
  uint64_t path_looks = 0;  // of these: bytes of it were between the two kernels
};

inline constexpr int64_t kSlowWindowNs = 5'000'000'000;

// Of the sisters of flow `which`; 0 without any.
uint64_t MedianOfOthers(std::span<const FlowWork> flows, size_t which);

// Within one window.
bool IsSlow(std::span<const FlowWork> flows, size_t which);

struct SlowFlow {
  size_t which = 0;
  int64_t for_ns = 0;  // since it is
  // In the last windows, as many as it takes to be called slow.
  double bytes_per_s = 0;
  double others_bytes_per_s = 0;  // median
  double share = 0;               // of the bytes of all flows
};

class SlowFlowWatch {
 public:
  explicit SlowFlowWatch(size_t flows) : of_(flows) {}

  // True when a window has ended: Judge is to be called. Costs a comparison.
  bool Due(int64_t now_ns) const { return now_ns - since_ns_ >= kSlowWindowNs; }

  // What each flow has done since it began. The flows to be told of: when they become slow, and
  // never twice in ten minutes.
  std::vector<SlowFlow> Judge(int64_t now_ns, std::span<const FlowWork> totals);

 private:
  struct Of {
    FlowWork before;      // at the last window's end
    FlowWork last;        // in it
    int windows = 0;      // slow ones in a row
    int64_t slow_ns = 0;  // since when
    std::optional<int64_t> told_ns;
  };
  std::vector<Of> of_;
  int64_t since_ns_ = 0;
  int64_t last_ns_ = 0;  // how long the last window was
};

// A cluster with one bad link has a slow flow in every process: each says one line a minute at
// most. For all connections of a process.
class WarningBudget {
 public:
  // How many were held back since the last one; nothing: hold this one back as well.
  std::optional<uint64_t> Take(int64_t now_ns);

 private:
  std::mutex mutex_;
  std::optional<int64_t> last_ns_;
  uint64_t held_back_ = 0;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_SLOW_FLOW_H_
