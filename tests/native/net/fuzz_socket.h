// SPDX-License-Identifier: Apache-2.0
// The peer's end of a flow, controlled by a fuzzer, over 127.0.0.1.
#pragma once

#include "net/clock.h"
#include "net/device_table.h"
#include "net/socket.h"
#include "net/transport.h"
#include "standard.h"

namespace nccltune::net {

// The fuzzer's input, and the checks that must hold for any input.

// Aborts with the message and the input, which a fuzzer records as a finding.
void Require(bool condition, const char* what);

// Reads bytes from the front; zeros after the end.
class FuzzInput {
 public:
  explicit FuzzInput(std::span<const uint8_t> bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const uint8_t byte = left_.front();
    left_ = left_.subspan(1);
    return byte;
  }
  // Returns a number from 0 to `limit` - 1.
  size_t Below(size_t limit) { return (size_t{Byte()} << 8 | Byte()) % limit; }
  bool Chance() { return (Byte() & 1) != 0; }
  std::vector<std::byte> Bytes(size_t most) {
    std::vector<std::byte> bytes(std::min(most, left_.size()));
    for (std::byte& each : bytes) each = std::byte{Byte()};
    return bytes;
  }
  // Changes some of the bytes, at least one.
  void Mutate(std::span<std::byte> bytes) {
    const size_t changes = 1 + Below(4);
    for (size_t i = 0; i < changes; ++i) bytes[Below(bytes.size())] ^= std::byte(Byte() | 1);
  }

 private:
  std::span<const uint8_t> left_;
};

// The messages of a case; both ends know their sizes and bytes. No byte is equal to a frame's first
// byte.
constexpr size_t FuzzSize(uint64_t number) {
  constexpr std::array<size_t, 11> kSizes = {40'000, 1,    8192,   0,      100'003, 1024,
                                             8193,   1025, 65'536, 24'576, 300'000};
  return kSizes[number % kSizes.size()];
}
constexpr std::byte FuzzByte(uint64_t number, uint64_t offset) {
  return static_cast<std::byte>((number * 131 + offset * 7 + (offset >> 8) * 13) & 0x7f);
}

// Each runs one case.
void FuzzDecoders(std::span<const uint8_t> bytes);
void FuzzReceiver(std::span<const uint8_t> bytes);
void FuzzSender(std::span<const uint8_t> bytes);

// Selects the kind by the first byte modulo four.
enum class FuzzKind : uint8_t { kDecoders, kSender, kReceiver, kReceiverAgain };
void FuzzWire(std::span<const uint8_t> bytes);

// A case that takes longer counts as hanging.
inline constexpr int64_t kLongestNs = 120 * kNsPerSecond;

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
