// SPDX-License-Identifier: Apache-2.0
//
// Both ends of a connection in one process, over 127.0.0.1, without an adapter.
#ifndef NCCLTUNE_TESTS_NET_LINK_H_
#define NCCLTUNE_TESTS_NET_LINK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/transport.h"

namespace nccltune::net {

using HandleArray = std::array<std::byte, kHandleBytes>;

// One NIC, 127.0.0.1.
Device Loopback();

// Lines are kept for TakeLines.
Surroundings SurroundingsWith(const NetSettings& settings);
std::vector<std::string> TakeLines();
// One of them has all of these words.
bool HasLine(const std::vector<std::string>& lines, const std::vector<std::string>& words);

// Asks until `true` or a minute has passed, which is an error of the test.
bool Until(const std::function<bool()>& ask);

std::vector<std::byte> Content(size_t bytes, uint64_t seed);

// Of a request that is tested until it is done or fails.
struct Ended {
  abi::Result result = abi::kSuccess;
  size_t bytes = 0;
};
Ended Finish(Request* request);

// A listener and one connection through it.
class Link {
 public:
  explicit Link(const NetSettings& settings = {});
  ~Link() { CloseAll(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Another connection through the listener, in place of this one.
  void Join();
  // The same, where the connector dials `end` in place of the listener.
  void JoinThrough(const Endpoint& end);
  bool stands() const { return sender != nullptr && receiver != nullptr; }
  // Where the listener is.
  Endpoint end() const;
  // What a connector gets from NCCL.
  HandleArray handle() const { return handle_; }
  const Surroundings& surroundings() const { return surroundings_; }

  void CloseSender();
  void CloseReceiver();
  void CloseListener();
  void CloseAll();

  Listener* listener = nullptr;
  Sender* sender = nullptr;
  Receiver* receiver = nullptr;

 private:
  void Join(HandleArray handle);

  Surroundings surroundings_;
  HandleArray handle_ = {};
};

struct Plan {
  std::vector<size_t> sizes;
  size_t slack = 0;    // how much larger receives are
  size_t window = 32;  // outstanding at each end
  uint64_t seed = 1;   // of the bytes and the order of tests
  std::function<void(size_t received)> between = nullptr;
};

// Sends all that and checks every byte and size, and that nothing is written behind a message.
// False after a failure, which is reported.
bool Exchange(const Link& link, const Plan& plan);

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_LINK_H_
