// SPDX-License-Identifier: Apache-2.0
// The work of the progress thread in each mode. The thread handles all connections of the process
// one after the other, like NCCL's proxy.
#ifndef NCCLTUNE_HOST_NET_EXCHANGE_H_
#define NCCLTUNE_HOST_NET_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "host/net/message_end.h"

namespace nccltune::host::net {

struct TransferCount {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};

// The counters of this process in the measured time.
struct Measured {
  TransferCount sent;
  TransferCount received;
  double seconds = 0;
  double cpu_seconds = 0;
};

class MessageExchange {
 public:
  MessageExchange(HostProcess* process, PluginEndpoint* endpoint);

  // The three steps of a run. Register and Deregister handle the buffers, in the service thread.
  // Progress exchanges the messages, in the progress thread.
  void Register();
  void Progress();
  void Deregister();

  bool CheckGuards();
  void MarkOutstanding();
  bool CheckMarks();

  const Measured& measured() const { return measured_; }

 private:
  class Meter;

  void Transfer();
  void Throughput();
  void EndTogether();
  void EndAfter(bool sends, const std::string& totals);
  void Idle();
  // Makes one pass over all ends. Returns false when the run is over. Yields the CPU if no message
  // moved in this pass. Records a failure if no message has moved for the timeout.
  bool Pass();
  bool AllFinished() const;

  HostProcess& process_;
  const NetCheckOptions& options_;
  std::vector<std::unique_ptr<MessageEnd>> ends_;
  int64_t moved_at_ns_ = 0;
  unsigned idle_passes_ = 0;
  Measured measured_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_EXCHANGE_H_
