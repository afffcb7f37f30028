// SPDX-License-Identifier: Apache-2.0
#include "net/wire.h"

#include <algorithm>

#include "common/little_endian.h"
#include "net/arrivals.h"

namespace nccltune::net {
namespace {

// The bytes "NTn1". A foreign connection is unlikely to send them.
constexpr uint32_t kWireMagic = 0x316e544eU;

using little_endian::Get;
using little_endian::Put;

template <size_t kBytes>
std::array<std::byte, kBytes> Begun(FrameType type) {
  std::array<std::byte, kBytes> bytes{};
  Put(std::span<std::byte>(bytes), 0, static_cast<uint8_t>(type));
  return bytes;
}

bool IsType(std::span<const std::byte> bytes, FrameType type) {
  return Get<uint8_t>(bytes, 0) == static_cast<uint8_t>(type);
}

// Returns whether all bytes are zero. Reserved bytes must be zero in this release.
bool Zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
}

}  // namespace

// Layout (number of bytes): type 1, zero 1, release 2, magic 4, token 16, connection 8, flow 2,
// flows 2. The other bytes are zero.
std::array<std::byte, kHelloBytes> Encode(const Hello& hello) {
  auto bytes = Begun<kHelloBytes>(FrameType::kHello);
  const std::span<std::byte> to(bytes);
  Put(to, 2, hello.release);
  Put(to, 4, kWireMagic);
  std::ranges::copy(hello.token, to.begin() + 8);
  Put(to, 24, hello.connection);
  Put(to, 32, hello.flow);
  Put(to, 34, hello.flows);
  return bytes;
}

std::optional<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes) {
  if (!IsType(bytes, FrameType::kHello) || Get<uint32_t>(bytes, 4) != kWireMagic) {
    return std::nullopt;
  }
  Hello hello;
  hello.release = Get<uint16_t>(bytes, 2);
  std::copy_n(bytes.begin() + 8, hello.token.size(), hello.token.begin());
  if (hello.release != kWireRelease) return hello;
  hello.connection = Get<uint64_t>(bytes, 24);
  hello.flow = Get<uint16_t>(bytes, 32);
  hello.flows = Get<uint16_t>(bytes, 34);
  const bool fits =
      hello.flows >= kFewestFlows && hello.flows <= kMostFlows && hello.flow < hello.flows;
  if (!fits || !Zero(bytes.subspan(1, 1)) || !Zero(bytes.subspan(36))) return std::nullopt;
  return hello;
}

// Layout (number of bytes): type 1, status 1, release 2, magic 4, flows 2. The other bytes are
// zero.
std::array<std::byte, kWelcomeBytes> Encode(const Welcome& welcome) {
  auto bytes = Begun<kWelcomeBytes>(FrameType::kWelcome);
  const std::span<std::byte> to(bytes);
  Put(to, 1, static_cast<uint8_t>(welcome.status));
  Put(to, 2, welcome.release);
  Put(to, 4, kWireMagic);
  Put(to, 8, welcome.flows);
  return bytes;
}

std::optional<Welcome> DecodeWelcome(std::span<const std::byte, kWelcomeBytes> bytes) {
  if (!IsType(bytes, FrameType::kWelcome) || Get<uint32_t>(bytes, 4) != kWireMagic) {
    return std::nullopt;
  }
  Welcome welcome;
  welcome.release = Get<uint16_t>(bytes, 2);
  if (welcome.release != kWireRelease) {
    welcome.status = WelcomeStatus::kOtherRelease;
    return welcome;
  }
  const auto status = Get<uint8_t>(bytes, 1);
  welcome.flows = Get<uint16_t>(bytes, 8);
  if (status < 1 || status > 4 || !Zero(bytes.subspan(10))) return std::nullopt;
  welcome.status = static_cast<WelcomeStatus>(status);
  const bool possible = welcome.status == WelcomeStatus::kFewerFlows
                            ? welcome.flows != 1 && welcome.flows < kMostFlows
                            : welcome.flows == 0;
  if (!possible) return std::nullopt;
  return welcome;
}

// Layout (number of bytes): type 1, zero 3, length 4, request 8, offset 8, total 8.
std::array<std::byte, kDataHeaderBytes> Encode(const DataHeader& header) {
  auto bytes = Begun<kDataHeaderBytes>(FrameType::kData);
  const std::span<std::byte> to(bytes);
  Put(to, 4, header.length);
  Put(to, 8, header.request);
  Put(to, 16, header.offset);
  Put(to, 24, header.total);
  return bytes;
}

std::array<std::byte, kDataHeaderBytes> EncodeForwardBye() {
  return Begun<kDataHeaderBytes>(FrameType::kBye);
}

std::optional<ForwardFrame> DecodeForwardFrame(std::span<const std::byte, kDataHeaderBytes> bytes) {
  if (IsType(bytes, FrameType::kBye)) {
    if (!Zero(bytes.subspan(1))) return std::nullopt;
    return ForwardFrame{FrameType::kBye, {}};
  }
  if (!IsType(bytes, FrameType::kData) || !Zero(bytes.subspan(1, 3))) return std::nullopt;
  DataHeader header;
  header.length = Get<uint32_t>(bytes, 4);
  header.request = Get<uint64_t>(bytes, 8);
  header.offset = Get<uint64_t>(bytes, 16);
  header.total = Get<uint64_t>(bytes, 24);
  if (header.total > kLargestRequest || header.length > kLongestChunk) return std::nullopt;
  if (!OnGrid(header.total, header.offset, header.length)) return std::nullopt;
  return ForwardFrame{FrameType::kData, header};
}

// Layout (number of bytes): type 1, zero 7, value 8.
std::array<std::byte, kReverseFrameBytes> Encode(const ReverseFrame& frame) {
  auto bytes = Begun<kReverseFrameBytes>(frame.type);
  Put(std::span<std::byte>(bytes), 8, frame.value);
  return bytes;
}

std::optional<ReverseFrame> DecodeReverseFrame(
    std::span<const std::byte, kReverseFrameBytes> bytes) {
  const auto type = static_cast<FrameType>(Get<uint8_t>(bytes, 0));
  const bool known =
      type == FrameType::kAck || type == FrameType::kWaiting || type == FrameType::kBye;
  if (!known || !Zero(bytes.subspan(1, 7))) return std::nullopt;
  return ReverseFrame{type, Get<uint64_t>(bytes, 8)};
}

}  // namespace nccltune::net
