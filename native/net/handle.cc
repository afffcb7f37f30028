// SPDX-License-Identifier: Apache-2.0
#include "net/handle.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "common/little_endian.h"

namespace nccltune::net {
namespace {

using little_endian::Get;
using little_endian::Put;

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
