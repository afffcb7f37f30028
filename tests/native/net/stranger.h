// SPDX-License-Identifier: Apache-2.0
//
// Bytes at a listener's port that no plugin sent, and a hand on the sockets of this process.
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
  explicit Stranger(const Endpoint& end);

  void Say(std::span<const std::byte> bytes);
  void Say(std::string_view text);
  // With a reset instead of an end.
  void Reset();
  // The other side has closed. What it said before is kept.
  bool Closed();
  // Once a whole one is there.
  std::optional<Welcome> Welcomed();

 private:
  bool Hear();

  Socket socket_;
  std::vector<std::byte> heard_;
};

// Sockets of this process that are connected to `end`: the connector's ends of its flows, by age.
std::vector<int> SocketsTo(const Endpoint& end);

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_STRANGER_H_
