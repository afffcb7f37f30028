// SPDX-License-Identifier: Apache-2.0
#include "net/wire.h"

#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/little_endian.h"

namespace nccltune::net {
namespace {

constexpr uint64_t kSmallestGranule = 8 << 10;
constexpr uint64_t kLargestGranule = 1 << 20;
// A request has at most this many granules. Only a request with the largest granule may have more.
constexpr uint64_t kMostGranules = 4096;

}  // namespace

uint64_t Granule(uint64_t total) {
  const uint64_t wanted = std::bit_ceil(total / kMostGranules + 1);
  return std::clamp(wanted, kSmallestGranule, kLargestGranule);
}

bool OnGrid(uint64_t total, uint64_t offset, uint64_t length) {
  if (offset > total || length > total - offset) return false;
  if (length == 0) return total == 0;
  const uint64_t granule = Granule(total);
  const bool ends_well = length % granule == 0 || offset + length == total;
  return offset % granule == 0 && ends_well;
}

void Arrivals::Reset(uint64_t total) {
  total_ = total;
  granule_ = Granule(total);
  arrived_.assign(total == 0 ? 1 : (total + granule_ - 1) / granule_, false);
}

bool Arrivals::AnyMissing(uint64_t offset, uint64_t length) const {
  const uint64_t last = length == 0 ? 0 : (offset + length - 1) / granule_;
  for (uint64_t i = offset / granule_; i <= last; ++i) {
    if (!arrived_[i]) return true;
  }
  return false;
}

uint64_t Arrivals::Mark(uint64_t offset, uint64_t length) {
  uint64_t bytes = 0;
  const uint64_t last = length == 0 ? 0 : (offset + length - 1) / granule_;
  for (uint64_t i = offset / granule_; i <= last; ++i) {
    if (arrived_[i]) continue;
    arrived_[i] = true;
    bytes += std::min(granule_, total_ - i * granule_);
  }
  return bytes;
}

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

namespace {

// Layout in bytes: magic 4, release 2, family 1, address count 1, token 16, addresses with ports
// (as in sockaddr, network byte order), attempt number in the last 8. Numbers are little-endian on
// every host. Magic and release keep their places in all releases, so that each side can name the
// other's release. The other fields may change with kWireRelease.
constexpr uint32_t kHandleMagic = 0x486e544eU;
constexpr size_t kAddressesAt = 24;
constexpr size_t kOwnAt = kHandleBytes - sizeof(uint64_t);
constexpr uint8_t kV4 = 4;
constexpr uint8_t kV6 = 6;

// PutRaw and GetRaw are for bytes that already have the right order: the token, and the fields of
// sockaddr in network byte order.
template <typename T>
void PutRaw(Handle handle, size_t at, const T& value) {
  std::memcpy(handle.data() + at, &value, sizeof(T));
}

template <typename T>
T GetRaw(Handle handle, size_t at) {
  T value{};
  std::memcpy(&value, handle.data() + at, sizeof(T));
  return value;
}

void PutEnd(Handle handle, size_t at, const SocketEndpoint& end, bool v6) {
  if (v6) {
    const auto* const from = reinterpret_cast<const sockaddr_in6*>(&end.storage);
    PutRaw(handle, at, from->sin6_port);
    PutRaw(handle, at + 2, from->sin6_addr);
  } else {
    const auto* const from = reinterpret_cast<const sockaddr_in*>(&end.storage);
    PutRaw(handle, at, from->sin_port);
    PutRaw(handle, at + 2, from->sin_addr);
  }
}

SocketEndpoint GetEnd(Handle handle, size_t at, bool v6) {
  SocketEndpoint end;
  if (v6) {
    auto* const to = reinterpret_cast<sockaddr_in6*>(&end.storage);
    to->sin6_family = AF_INET6;
    to->sin6_port = GetRaw<in_port_t>(handle, at);
    to->sin6_addr = GetRaw<in6_addr>(handle, at + 2);
  } else {
    auto* const to = reinterpret_cast<sockaddr_in*>(&end.storage);
    to->sin_family = AF_INET;
    to->sin_port = GetRaw<in_port_t>(handle, at);
    to->sin_addr = GetRaw<in_addr>(handle, at + 2);
  }
  return end;
}

size_t EndBytes(bool v6) { return sizeof(in_port_t) + (v6 ? sizeof(in6_addr) : sizeof(in_addr)); }

}  // namespace

void WriteHandle(const Invitation& invitation, Handle handle) {
  std::ranges::fill(handle, std::byte{0});
  const bool v6 = invitation.ends.front().storage.ss_family == AF_INET6;
  const size_t most = v6 ? kMostAddressesV6 : kMostAddressesV4;
  const size_t count = std::min(invitation.ends.size(), most);
  Put(handle, 0, kHandleMagic);
  Put(handle, 4, invitation.release);
  Put(handle, 6, v6 ? kV6 : kV4);
  Put(handle, 7, static_cast<uint8_t>(count));
  PutRaw(handle, 8, invitation.token);
  for (size_t i = 0; i < count; ++i) {
    PutEnd(handle, kAddressesAt + i * EndBytes(v6), invitation.ends[i], v6);
  }
}

std::optional<Invitation> ReadHandle(Handle handle) {
  if (Get<uint32_t>(handle, 0) != kHandleMagic) return std::nullopt;
  Invitation invitation;
  invitation.release = Get<uint16_t>(handle, 4);
  if (invitation.release != kWireRelease) return invitation;
  const auto family = Get<uint8_t>(handle, 6);
  if (family != kV4 && family != kV6) return std::nullopt;
  const bool v6 = family == kV6;
  const size_t count = Get<uint8_t>(handle, 7);
  if (count == 0 || count > (v6 ? kMostAddressesV6 : kMostAddressesV4)) return std::nullopt;
  invitation.token = GetRaw<Token>(handle, 8);
  for (size_t i = 0; i < count; ++i) {
    invitation.ends.push_back(GetEnd(handle, kAddressesAt + i * EndBytes(v6), v6));
    if (invitation.ends.back().port() == 0) return std::nullopt;
  }
  return invitation;
}

Token TokenOf(Handle handle) { return GetRaw<Token>(handle, 8); }

uint64_t AttemptOf(Handle handle) { return Get<uint64_t>(handle, kOwnAt); }
void SetAttempt(Handle handle, uint64_t attempt) { Put(handle, kOwnAt, attempt); }

}  // namespace nccltune::net
