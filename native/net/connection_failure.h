// SPDX-License-Identifier: Apache-2.0
//
// Whether and why one end of a connection has failed, its log line, and how long no flow has been
// up.
#ifndef NCCLTUNE_NET_CONNECTION_FAILURE_H_
#define NCCLTUNE_NET_CONNECTION_FAILURE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "abi/nccl_types.h"
#include "common/log.h"

namespace nccltune::net {

// The failure state of a sender or receiver. Its owner holds its own lock in every call except
// failed() and result().
class ConnectionFailure {
 public:
  // `what` is the start of the log line: "sending to 10.0.0.1:4000 on eth0".
  ConnectionFailure(const Log& log, std::string what) : log_(log), what_(std::move(what)) {}

  bool failed() const { return error_.load() != abi::kSuccess; }
  abi::Result result() const { return error_.load(); }

  // Records the first failure; later ones are ignored. Warns if NCCL waits for a request. Otherwise
  // it logs at INFO: the peer may just have finished before us. If memory runs out, the connection
  // still fails, with a shorter line.
  void Set(abi::Result result, std::string_view why, bool waiting, uint64_t bytes) noexcept;

  // Returns the result for a new call on the failed connection. Warns first if the failure was only
  // logged at INFO.
  abi::Result Refuse();

  // A flow came up or went down. `why` is the reason; empty keeps the previous one.
  void FlowsChanged(int64_t now_ns, bool any_up, std::string_view why);
  const std::string& why_down() const { return why_down_; }
  // Returns why the connection must fail because no flow has been up for too long. Empty: it need
  // not fail.
  std::string NoFlow(int64_t now_ns) const;

 private:
  Log log_;
  std::string what_;
  std::string unwarned_;     // the failure's log line, if it was not a warning yet
  int64_t all_down_ns_ = 0;  // time since which no flow is up; 0: a flow is up
  std::string why_down_;
  std::atomic<abi::Result> error_ = abi::kSuccess;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_CONNECTION_FAILURE_H_
