// SPDX-License-Identifier: Apache-2.0
// The 128-byte handle that NCCL transfers from a listener to its connector. The handle comes from
// another host, so every field is checked. In the last eight bytes, the connector stores the number
// of its connect attempt.
#ifndef NCCLTUNE_NET_HANDLE_H_
#define NCCLTUNE_NET_HANDLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {

inline constexpr size_t kHandleBytes = 128;
using Handle = std::span<std::byte, kHandleBytes>;
// A handle has room for five IPv6 or fourteen IPv4 addresses. For a device with more NICs, the
// handle contains the first ones.
inline constexpr size_t kMostAddressesV6 = 5;
inline constexpr size_t kMostAddressesV4 = 14;

// The decoded content of a handle.
struct Invitation {
  uint16_t release = kWireRelease;
  Token token = {};
  std::vector<SocketEndpoint> ends;  // at least one, all of the same family
};

void WriteHandle(const Invitation& invitation, Handle handle);
// Returns nothing if the handle is invalid or is not nccltune's. If the handle has another release
// of the wire format, only `release` is set.
std::optional<Invitation> ReadHandle(Handle handle);

// Returns the token of a handle that ReadHandle has accepted.
Token TokenOf(Handle handle);

// Returns the number of the connect attempt that SetAttempt stored; 0 before NCCL's first call of
// connect.
uint64_t AttemptOf(Handle handle);
void SetAttempt(Handle handle, uint64_t attempt);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_HANDLE_H_
