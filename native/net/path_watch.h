// SPDX-License-Identifier: Apache-2.0
//
// Decides whether the peer's host still answers. Times and the kernel's facts are arguments, so
// that tests need no clock and no socket.
#ifndef NCCLTUNE_NET_PATH_WATCH_H_
#define NCCLTUNE_NET_PATH_WATCH_H_

#include <cstdint>
#include <optional>

#include "net/socket.h"

namespace nccltune::net {

// Watches the path of one socket. The path is dead if the peer's kernel owes an acknowledgement (of
// segments or probes) and sends none within the time limit. If the peer's application does not
// read, the TCP window closes, but the peer's kernel still answers probes: the flow is alive. Idle
// connections are checked by keepalive.
class PathWatch {
 public:
  explicit PathWatch(int path_timeout_ms);

  // Call this after bytes were written to the socket.
  void Wrote() { armed_ = true; }
  // Returns when IsDead must be called at the latest; INT64_MAX if no acknowledgement is owed.
  int64_t NextNs() const { return armed_ ? next_ns_ : INT64_MAX; }
  bool Due(int64_t now_ns) const { return armed_ && now_ns >= next_ns_; }

  bool IsDead(int64_t now_ns, const PathFacts& facts);

  // Resets the state for another socket.
  void Reset();

 private:
  int64_t limit_ns_;
  bool armed_ = false;
  int64_t next_ns_ = 0;
  std::optional<int64_t> owed_since_ns_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_PATH_WATCH_H_
