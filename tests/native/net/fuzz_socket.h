// SPDX-License-Identifier: Apache-2.0
//
// The peer's end of a flow in a fuzzer's hand, over 127.0.0.1.
#ifndef NCCLTUNE_TESTS_NET_FUZZ_SOCKET_H_
#define NCCLTUNE_TESTS_NET_FUZZ_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "net/clock.h"
#include "net/device.h"
#include "net/socket.h"
#include "net/transport.h"

namespace nccltune::net {

// What takes longer hangs.
inline constexpr int64_t kLongestNs = 30 * kNsPerSecond;

Device FuzzDevice();
Surroundings FuzzSurroundings();

class FuzzSocket {
 public:
  FuzzSocket() = default;
  explicit FuzzSocket(const Endpoint& end);
  explicit FuzzSocket(Socket socket) : socket_(std::move(socket)) {}

  bool open() const { return socket_.open(); }
  // As much as there is room for.
  size_t SaySome(std::span<const std::byte> bytes);
  // False: not all of it has gone, and the flow is of no use any more.
  bool Say(std::span<const std::byte> bytes) { return SaySome(bytes) == bytes.size(); }
  // Adds what is there; false at the end.
  bool Hear(std::vector<std::byte>* heard);
  void Close() { socket_.Close(); }
  // With a reset instead of an end.
  void Reset();

 private:
  Socket socket_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_FUZZ_SOCKET_H_
