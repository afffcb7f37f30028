// SPDX-License-Identifier: Apache-2.0
// One end of a connection with its buffers and outstanding requests. A MessageEnd does what NCCL's
// proxy progress thread does for one channel.
#ifndef NCCLTUNE_HOST_NET_MESSAGE_END_H_
#define NCCLTUNE_HOST_NET_MESSAGE_END_H_

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

inline constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

class MessageEnd {
 public:
  // With `check`, the sender generates the bytes and the receiver verifies them.
  MessageEnd(HostProcess* process, PluginEndpoint* endpoint, Connection* connection, bool check);

  // Registers and deregisters the buffers; called from the service thread.
  void Register();
  void Deregister();

  // Posts one request if a slot is free, and tests one outstanding request. Sets *moved if a
  // request was posted or completed. Returns false after an error.
  bool Step(bool* moved);

  // Posts requests until no slot is free, the limit is reached, or the plugin accepts no more.
  // Returns false after an error.
  bool Fill();

  // Sets the total number of messages; kNoLimit if it is not known yet.
  void set_limit(uint64_t limit) { limit_ = limit; }
  bool finished() const { return completed_ >= limit_; }
  // Stops posting and returns how many requests were posted.
  uint64_t StopPosting();
  // Appends a window of empty messages after `messages` messages. The empty messages complete the
  // receives that the other side has posted ahead.
  void EndAfter(uint64_t messages);

  bool sends() const { return connection_.sends; }
  uint64_t completed() const { return completed_; }
  uint64_t bytes() const { return bytes_; }

  // Checks the guard bytes of all buffers. Returns false if some were overwritten.
  bool CheckGuards();
  // MarkOutstanding fills the buffers of outstanding requests after close. CheckMarks later
  // verifies that they have not changed.
  void MarkOutstanding();
  bool CheckMarks();

  // Describes the requests for which this end waits.
  std::string Waiting() const;

 private:
  struct Slot {
    std::unique_ptr<GuardedBytes> memory;
    void* mhandle = nullptr;
    void* request = nullptr;
    uint64_t sequence = 0;
    uint64_t message_bytes = 0;  // size of the message when the request was posted
    uint64_t posted_bytes = 0;   // size passed to isend or irecv
    unsigned char* data = nullptr;
    int phandle = 0;
  };

  bool Post(bool* moved);
  bool TestOne(bool* moved);
  bool Complete();
  bool FailMessage(uint64_t sequence, const std::string& what);
  uint64_t SizeOf(uint64_t sequence) const;
  void Prepare(Slot* slot, uint64_t bytes);
  std::string MessageName(uint64_t sequence) const;

  HostProcess& process_;
  PluginEndpoint& endpoint_;
  Connection& connection_;
  const NetCheckOptions& options_;
  bool check_;
  Content content_;
  std::vector<Slot> slots_;
  std::deque<size_t> free_;
  std::deque<size_t> outstanding_;  // slots in the order of their requests
  std::mt19937_64 random_;
  uint64_t capacity_;
  uint64_t limit_ = kNoLimit;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t bytes_ = 0;
  std::optional<uint64_t> first_empty_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_MESSAGE_END_H_
