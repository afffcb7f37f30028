// SPDX-License-Identifier: Apache-2.0
// Records whether and why one end of a connection has failed, logs the failure, and measures how
// long no flow has been up. A flow is one TCP connection; several flows form one connection of
// NCCL.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "abi/nccl_types.h"
#include "common/log.h"
#include "net/socket.h"

namespace nccltune::net {

// The failure state of a sender or receiver. The sender or receiver holds its own lock in every
// call except failed() and result().
class ConnectionFailure {
 public:
  // `what` is the start of the log line, such as "sending to 10.0.0.1:4000 on eth0".
  // `down_timeout_s` limits the time without a flow while the peer's host does not answer; 0:
  // never.
  ConnectionFailure(const Log& log, std::string what, int down_timeout_s)
      : log_(log), what_(std::move(what)), down_timeout_s_(down_timeout_s) {}

  bool failed() const { return error_.load() != abi::kSuccess; }
  abi::Result result() const { return error_.load(); }

  // Records the first failure; later failures are ignored. `waiting`: NCCL waits for a request, so
  // the log line is a warning. Otherwise the log line is at INFO, because the peer may just have
  // finished before us. `bytes` is the number of outstanding bytes for the log line. If memory runs
  // out, the log line is a warning that contains only `why`.
  void Set(abi::Result result, std::string_view why, bool waiting, uint64_t bytes) noexcept;

  // Returns the result for a new call on the failed connection. If the failure was only logged at
  // INFO, logs it as a warning first.
  abi::Result Refuse();

  // Called after a flow came up, went down or could not reconnect. `any_up`: at least one flow is
  // up. `end`: why a flow is down; without a text, a flow came up.
  void FlowsChanged(int64_t now_ns, bool any_up, const SocketEnd& end);
  const std::string& why_down() const { return why_down_; }
  // Returns the reason for a failure if no flow has been up for too long; empty otherwise.
  std::string NoFlow(int64_t now_ns) const;

 private:
  Log log_;
  std::string what_;
  std::string unwarned_;  // the failure's log line if it was logged at INFO only
  int down_timeout_s_;
  int64_t all_down_ns_ = 0;  // time since which no flow is up; 0: a flow is up
  bool is_outage_ = false;   // a flow is down because the peer's host did not answer
  std::string why_down_;
  std::atomic<abi::Result> error_ = abi::kSuccess;
};

}  // namespace nccltune::net
