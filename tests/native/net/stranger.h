// SPDX-License-Identifier: Apache-2.0
//
// A foreign connection to a listener's port, and access to the sockets of this process.
#ifndef NCCLTUNE_TESTS_NET_STRANGER_H_
#define NCCLTUNE_TESTS_NET_STRANGER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {

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

#endif  // NCCLTUNE_TESTS_NET_STRANGER_H_
