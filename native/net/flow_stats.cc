// SPDX-License-Identifier: Apache-2.0
#include "net/flow_stats.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <optional>

#include "net/clock.h"
#include "net/socket.h"

namespace nccltune::net {
namespace {

constexpr int64_t kAskPathNs = kNsPerSecond;

// Returns whether the socket has bytes that the peer's kernel has not acknowledged. If so, the path
// is the bottleneck, and not a thread of either side.
bool OnItsWay(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

void FlowStats::CameUp(int fd) {
  // `sequence` is odd while the two texts are written. A reader that sees the same even number
  // before and after has read texts that belong together. The additions are sequentially consistent
  // for that reason.
  block_.sequence.fetch_add(1);
  block_.local.Set(LocalEnd(fd).Name());
  block_.peer.Set(PeerEnd(fd).Name());
  block_.sequence.fetch_add(1);
  Set(block_.up, 1);
  path_ns_ = 0;
}

void FlowStats::WentDown(bool died) {
  died_ = died;
  Set(block_.up, 0);
  Set(block_.undelivered, 0);
  if (died) Add(block_.deaths, 1);
}

void FlowStats::Sample(int64_t now_ns, int fd, bool busy) {
  if (fd < 0) return;
  if (busy) {
    Add(block_.samples, 1);
    const bool owes = block_.undelivered.load(std::memory_order_relaxed) != 0;
    if (owes && OnItsWay(fd)) Add(block_.path_samples, 1);
  }
  if (now_ns - path_ns_ < kAskPathNs) return;
  path_ns_ = now_ns;
  const std::optional<PathFacts> path = ReadPathFacts(fd);
  if (!path) return;
  Set(block_.retransmits, path->retransmits);
  if (path->shortest_round_trip_ns != 0) {
    Set(block_.min_rtt_ns, static_cast<uint64_t>(path->shortest_round_trip_ns));
  }
}

}  // namespace nccltune::net
