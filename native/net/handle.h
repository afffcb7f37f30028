// SPDX-License-Identifier: Apache-2.0
//
// The 128-byte handle that NCCL transfers from a listener to its connector. It comes from another
// host and is not trusted. The connector uses the last eight bytes for its attempt number.
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
// Five IPv6 addresses fit, or fourteen IPv4 ones. A device with more NICs lists the first ones.
inline constexpr size_t kMostAddressesV6 = 5;
inline constexpr size_t kMostAddressesV4 = 14;

struct Invitation {
  uint16_t release = kWireRelease;
  Token token = {};
  std::vector<SocketEndpoint> ends;  // at least one, all of the same family
};

void WriteHandle(const Invitation& invitation, Handle handle);
// Returns nothing if the handle is not ours. An invitation of another release has no ends.
std::optional<Invitation> ReadHandle(Handle handle);

// Returns the token. The handle must be ours.
Token TokenOf(Handle handle);

// Returns the attempt number; 0 before the first call of connect.
uint64_t AttemptOf(Handle handle);
void SetAttempt(Handle handle, uint64_t attempt);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_HANDLE_H_
