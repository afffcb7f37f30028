// SPDX-License-Identifier: Apache-2.0
//
// The peer's end of a flow, controlled by a fuzzer, over 127.0.0.1.
#ifndef NCCLTUNE_TESTS_NET_FUZZ_SOCKET_H_
#define NCCLTUNE_TESTS_NET_FUZZ_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "net/clock.h"
#include "net/device_table.h"
#include "net/socket.h"
#include "net/transport.h"

namespace nccltune::net {

// A case that takes longer counts as hanging.
inline constexpr int64_t kLongestNs = 30 * kNsPerSecond;

Device FuzzDevice();
ConnectionContext FuzzContext();

class FuzzSocket {
 public:
  FuzzSocket() = default;
  explicit FuzzSocket(const SocketEndpoint& end);
  explicit FuzzSocket(Descriptor socket) : socket_(std::move(socket)) {}

  bool open() const { return static_cast<bool>(socket_); }
  // Writes as much as fits into the socket.
  size_t SendAvailable(std::span<const std::byte> bytes);
  // Writes all bytes. Returns false if that failed; then the flow is unusable.
  bool SendBytes(std::span<const std::byte> bytes) { return SendAvailable(bytes) == bytes.size(); }
  // Appends the available bytes; returns false at the end of the stream.
  bool Hear(std::vector<std::byte>* heard);
  void Close() { socket_.Close(); }
  // Closes with a reset.
  void Reset();

 private:
  Descriptor socket_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_FUZZ_SOCKET_H_
