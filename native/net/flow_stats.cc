// SPDX-License-Identifier: Apache-2.0
#include "net/flow_stats.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>

#include "net/clock.h"
#include "net/socket.h"

namespace nccltune::net {
namespace {

constexpr int64_t kAskPathNs = kNsPerSecond;

// The peer's kernel does not have it all yet: the path is what is waited for, and no thread of ours
// or the peer's.
bool OnItsWay(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

void FlowStats::CameUp(int fd) {
  // In the order of all: who reads an even number twice has read what stands between.
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

void FlowStats::Look(int64_t now_ns, int fd, bool busy) {
  if (fd < 0) return;
  if (busy) {
    Add(block_.looks, 1);
    const bool owes = block_.undelivered.load(std::memory_order_relaxed) != 0;
    if (owes && OnItsWay(fd)) Add(block_.path_looks, 1);
  }
  if (now_ns - path_ns_ < kAskPathNs) return;
  path_ns_ = now_ns;
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  Set(block_.retransmits, info.tcpi_total_retrans);
  // Since Linux 4.6; before, and without a sample, all bits are set.
  const bool known = length >= offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt);
  if (known && info.tcpi_min_rtt != UINT32_MAX) {
    Set(block_.min_rtt_ns, uint64_t{info.tcpi_min_rtt} * 1000);
  }
}

}  // namespace nccltune::net
