// SPDX-License-Identifier: Apache-2.0
// The work of the progress thread in each mode. The thread handles all connections of the process
// one after the other, like NCCL's proxy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/guarded.h"
#include "host/net/content.h"
#include "host/net/endpoint.h"

namespace nccltune::host::net {

// One end of a connection with its buffers and outstanding requests. A MessageEnd does what NCCL's
// proxy progress thread does for one channel. Errors end the process.
class MessageEnd {
 public:
  // With `check`, the sender generates the bytes and the receiver verifies them.
  MessageEnd(HostProcess* process, PluginEndpoint* endpoint, Connection* connection, bool check);

  void Register();
  void Deregister();

  // Posts one request if a slot is free, and tests one outstanding request. Returns whether a
  // request was posted or completed.
  bool Step();
  // Posts requests until no slot is free, the limit is reached, or the plugin accepts no more.
  void Fill();

  // Sets the total number of messages.
  void set_limit(uint64_t limit) { limit_ = limit; }
  bool finished() const { return completed_ >= limit_; }
  // Stops posting and returns how many requests were posted.
  uint64_t StopPosting() { return limit_ = posted_; }
  // Appends a window of empty messages after `messages` messages. The empty messages complete the
  // receives that the other side has posted ahead.
  void EndAfter(uint64_t messages);

  bool sends() const { return connection_.sends; }
  uint64_t completed() const { return completed_; }
  uint64_t bytes() const { return bytes_; }

  // Checks the bytes around all buffers.
  void CheckGuards();
  // MarkOutstanding fills the buffers of outstanding requests after close. CheckMarks later
  // verifies that they have not changed.
  void MarkOutstanding();
  void CheckMarks();

  // Describes the message for which this end waits.
  std::string Waiting() const;

 private:
  struct Slot {
    std::unique_ptr<GuardedBytes> memory;
    void* mhandle = nullptr;
    void* request = nullptr;
    uint64_t sequence = 0;
    uint64_t posted_bytes = 0;  // size passed to isend or irecv
    unsigned char* data = nullptr;
  };

  bool Post();
  bool TestOne();
  void Complete();
  [[noreturn]] void FailMessage(uint64_t sequence, const std::string& what);
  uint64_t SizeOf(uint64_t sequence) const;
  void Prepare(Slot* slot);
  std::string MessageName(uint64_t sequence) const;

  HostProcess& process_;
  PluginEndpoint& endpoint_;
  Connection& connection_;
  const NetCheckOptions& options_;
  const bool check_;
  const Content content_;
  std::vector<Slot> slots_;
  std::deque<size_t> free_;
  std::deque<size_t> outstanding_;  // slots in the order of their requests
  std::mt19937_64 random_;
  const uint64_t capacity_;
  uint64_t limit_ = std::numeric_limits<uint64_t>::max();
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t bytes_ = 0;
  std::optional<uint64_t> first_empty_;
};

struct TransferCount {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};

// The counters of this process in the measured time.
struct Measured {
  TransferCount sent;
  TransferCount received;
  double seconds = 0;
};

class MessageExchange {
 public:
  MessageExchange(HostProcess* process, PluginEndpoint* endpoint);

  // Exchanges the messages, and closes the connections with all the calls that NCCL makes.
  void Run();

  const Measured& measured() const { return measured_; }

 private:
  void Progress();
  void Transfer();
  void Throughput();
  void EndTogether();
  void EndAfter(bool sends, const std::string& totals);
  Measured Count() const;
  // Sets the counters and wall time since `before`, a result of Count.
  void Measure(const Measured& before);
  // Makes one pass over all ends. Returns false after the expected loss of the peer. Yields the CPU
  // if no message moved in this pass. Fails if no message has moved for the timeout.
  bool Pass();
  bool AllFinished() const;

  HostProcess& process_;
  PluginEndpoint& endpoint_;
  const NetCheckOptions& options_;
  std::vector<std::unique_ptr<MessageEnd>> ends_;
  int64_t moved_at_ns_ = 0;
  unsigned passes_ = 0;
  Measured measured_;
};

}  // namespace nccltune::host::net
