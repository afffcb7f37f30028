// SPDX-License-Identifier: Apache-2.0
// What the progress thread does in each mode: all connections of the process, one after the other,
// as NCCL's proxy has it.
#ifndef NCCLTUNE_HOST_NET_EXCHANGE_H_
#define NCCLTUNE_HOST_NET_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "host/net/message_end.h"

namespace nccltune::host::net {

struct Flow {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};

// In the time that is measured, of this process.
struct Measured {
  Flow sent;
  Flow received;
  uint64_t asked_again = 0;
  uint64_t tests = 0;
  double seconds = 0;
  double cpu_seconds = 0;
  double progress_cpu_seconds = 0;  // of the thread that calls isend, irecv and test
  json::Value latencies = json::Value::EmptyArray();
};

class Exchange {
 public:
  Exchange(Stage* stage, Endpoint* endpoint);

  // Outstanding requests of a connection; fewer than asked for where memory does not allow them.
  int window() const { return window_; }

  // The three parts of a run: buffers (service thread), the messages (progress thread), the end.
  void Register();
  void Progress();
  void Deregister();

  bool CheckGuards();
  void MarkOutstanding();
  bool CheckMarks();
  uint64_t outstanding() const;

  const Measured& measured() const { return measured_; }

 private:
  class Meter;

  void Transfer();
  void Throughput();
  void EndTogether();
  void EndAfter(bool sends, const std::string& totals);
  void PingPong();
  void AnswerPings(MessageEnd* receives, MessageEnd* sends);
  void Ping(MessageEnd* sends, MessageEnd* receives);
  void Idle();
  // One pass over `ends`; false when the run is over. Yields when nothing moves, fails when nothing
  // has moved for too long.
  bool Pass(const std::vector<MessageEnd*>& ends);
  bool AllFinished() const;
  MessageEnd* Find(bool sends) const;

  Stage& stage_;
  const Options& options_;
  int window_;
  std::vector<std::unique_ptr<MessageEnd>> ends_;
  std::vector<MessageEnd*> all_;
  int64_t moved_at_ns_ = 0;
  unsigned idle_passes_ = 0;
  Measured measured_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_EXCHANGE_H_
