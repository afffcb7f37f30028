// SPDX-License-Identifier: Apache-2.0
// One end of a connection, its buffers and its outstanding requests: what NCCL's proxy progress
// thread does for one channel.
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
  // With `check` the bytes are made, and looked at where they arrive.
  MessageEnd(Stage* stage, Endpoint* endpoint, Connection* connection, int window, bool check);

  // Buffers; of the service thread.
  void Register();
  void Deregister();

  // Posts one request if there is room, and tests one. False after an error.
  bool Step(bool* moved);

  // Posts as many as there is room for.
  bool Fill();

  // Messages in all; kNoLimit until it is known.
  void set_limit(uint64_t limit) { limit_ = limit; }
  bool finished() const { return completed_ >= limit_; }
  // Posts no more; how many there were.
  uint64_t StopPosting();
  // After that many messages comes a window of empty ones, for the receives that were posted ahead.
  void EndAfter(uint64_t messages);

  bool sends() const { return connection_.sends; }
  bool forward() const { return connection_.forward; }
  uint64_t completed() const { return completed_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t asked_again() const { return asked_again_; }
  uint64_t tests() const { return tests_; }
  size_t outstanding() const { return outstanding_.size(); }

  // Guards of all buffers; false if one is damaged.
  bool CheckGuards();
  // After close: marks the buffers of what was outstanding, and later looks whether they changed.
  void MarkOutstanding();
  bool CheckMarks();

  // What it waits for, in words.
  std::string Waiting() const;

 private:
  struct Slot {
    std::unique_ptr<GuardedBytes> memory;
    void* mhandle = nullptr;
    void* request = nullptr;
    uint64_t sequence = 0;
    uint64_t made_bytes = 0;    // that were expected when it was posted
    uint64_t posted_bytes = 0;  // that a receive has room for
    unsigned char* data = nullptr;
    bool arrived = false;  // done; with optional completion the bytes may come later
    int phandle = 0;
  };

  bool Post(bool* moved);
  bool TestOne(bool* moved);
  bool Complete(size_t place);
  bool CheckReceived(const Slot& slot, int reported);
  bool FailMessage(uint64_t sequence, const std::string& what);
  uint64_t SizeOf(uint64_t sequence) const;
  void Prepare(Slot* slot, uint64_t bytes);
  std::string MessageName(uint64_t sequence) const;

  Stage& stage_;
  Endpoint& endpoint_;
  Connection& connection_;
  const Options& options_;
  bool check_;
  Content content_;
  std::vector<Slot> slots_;
  std::deque<size_t> free_;
  std::deque<size_t> outstanding_;  // slots, in the order of their requests
  std::mt19937_64 random_;
  uint64_t capacity_;
  uint64_t limit_ = kNoLimit;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t bytes_ = 0;
  uint64_t asked_again_ = 0;
  uint64_t tests_ = 0;
  std::optional<uint64_t> first_empty_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_MESSAGE_END_H_
