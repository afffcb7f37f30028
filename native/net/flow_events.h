// SPDX-License-Identifier: Apache-2.0
//
// Events and intervals that the sending and the receiving end of a flow (a TCP connection) share.
#ifndef NCCLTUNE_NET_FLOW_EVENTS_H_
#define NCCLTUNE_NET_FLOW_EVENTS_H_

#include <sys/epoll.h>

#include <cstdint>

#include "net/clock.h"

namespace nccltune::net {

// epoll events that mean: the peer has closed the socket, or the socket has failed.
inline constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
// Interval of the periodic checks of timeouts and statistics.
inline constexpr int64_t kBetweenTicksNs = 100 * kNsPerMs;

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_FLOW_EVENTS_H_
