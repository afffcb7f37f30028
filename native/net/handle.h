// SPDX-License-Identifier: Apache-2.0
//
// The 128 bytes that NCCL carries from a listener to its connector. They come from another host and
// are not believed. The last eight are the connector's own: the number of its attempt.
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
// Five addresses of IPv6 fit, fourteen of IPv4: a device with more NICs names its first ones.
inline constexpr size_t kMostAddressesV6 = 5;
inline constexpr size_t kMostAddressesV4 = 14;

struct Invitation {
  uint16_t release = kWireRelease;
  Token token;
  std::vector<Endpoint> ends;  // of one family, at least one
};

void WriteHandle(const Invitation& invitation, Handle handle);
// Nothing: it is not ours. An invitation of another release has no ends.
std::optional<Invitation> ReadHandle(Handle handle);

// 0 before the first call of connect.
uint64_t AttemptOf(Handle handle);
void SetAttempt(Handle handle, uint64_t attempt);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_HANDLE_H_
