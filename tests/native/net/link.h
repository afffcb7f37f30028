// SPDX-License-Identifier: Apache-2.0
// Both ends of a connection in one process, over 127.0.0.1, without an adapter.
#ifndef NCCLTUNE_TESTS_NET_LINK_H_
#define NCCLTUNE_TESTS_NET_LINK_H_

#include "log_line.h"
#include "net/socket.h"
#include "net/transport.h"
#include "net/wire.h"
#include "standard.h"

namespace nccltune::net {

using HandleArray = std::array<std::byte, kHandleBytes>;

// One NIC, 127.0.0.1.
Device Loopback();

// Returns a context whose log lines are kept for TakeLines.
ConnectionContext ContextWith(const NetSettings& settings);
// Returns whether one line has all of these words.
bool HasLine(const std::vector<std::string>& lines, const std::vector<std::string>& words);

// Calls `ask` until it returns true. Fails the test after a minute.
bool Until(const std::function<bool()>& ask);

std::vector<std::byte> Content(size_t bytes, uint64_t seed);

// The result of a request that was tested until it was done or failed.
struct RequestResult {
  abi::Result result = abi::kSuccess;
  size_t bytes = 0;
};
RequestResult Finish(TransferRequest* request);

// A listener and one connection through it.
class Link {
 public:
  explicit Link(const NetSettings& settings = {});
  ~Link() { CloseAll(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Another connection through the listener, in place of this one.
  void Join();
  // The same, but the connector dials `end` instead of the listener.
  void JoinThrough(const SocketEndpoint& end);
  bool stands() const { return sender != nullptr && receiver != nullptr; }
  // Returns the listener's address.
  SocketEndpoint end() const;
  // Returns the handle that a connector gets from NCCL.
  HandleArray handle() const { return handle_; }
  const ConnectionContext& context() const { return context_; }

  void CloseSender();
  void CloseReceiver();
  void CloseListener();
  void CloseAll();

  Listener* listener = nullptr;
  Sender* sender = nullptr;
  Receiver* receiver = nullptr;

 private:
  void Join(HandleArray handle);

  ConnectionContext context_;
  HandleArray handle_ = {};
};

struct Plan {
  std::vector<size_t> sizes;
  size_t slack = 0;    // how much larger the receives are than the sends
  size_t window = 32;  // requests outstanding at each end
  uint64_t seed = 1;   // for the content and the order of tests
  std::function<void(size_t received)> between = nullptr;
};

// Sends all messages and checks every byte and size, and that nothing is written past a message.
// Returns false after a reported failure.
bool Exchange(const Link& link, const Plan& plan);

// A foreign connection to a listener's port, and access to the sockets of this process.

class Stranger {
 public:
  explicit Stranger(const SocketEndpoint& end);

  void SendBytes(std::span<const std::byte> bytes);
  void SendBytes(std::string_view text);
  // Closes with a reset.
  void Reset();
  // Returns whether the other side has closed. Received data is kept.
  bool Closed();
  // Returns the welcome once it has arrived completely.
  std::optional<Welcome> Welcomed();
  // Returns the bytes that have arrived after the welcome.
  std::span<const std::byte> ReceivedAfterWelcome();
  int fd() const { return socket_.fd(); }

 private:
  bool Hear();

  Descriptor socket_;
  std::vector<std::byte> received_;
};

// Returns the sockets of this process that are connected to `end`, oldest first.
std::vector<int> SocketsTo(const SocketEndpoint& end);

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_LINK_H_
