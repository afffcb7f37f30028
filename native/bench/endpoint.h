// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_ENDPOINT_H_
#define NCCLTUNE_BENCH_ENDPOINT_H_

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nccltune::bench {

// The address at which process 0 listens and to which the other processes connect.
struct Endpoint {
  std::string host;  // a host name, or an IPv4 or IPv6 address
  int port = 0;

  bool operator==(const Endpoint&) const = default;
};

// Parses "host:29500", "10.0.0.1:29500" or "[fe80::1%eth0]:29500". Returns nullopt for any other
// form.
std::optional<Endpoint> ParseEndpoint(std::string_view text);

std::string ToString(const Endpoint& endpoint);

// Returns whether the host is an IP address or "localhost". Process 0 then listens on exactly that
// address. For any other host name, process 0 listens on all interfaces, because many hosts resolve
// their own name to a loopback address.
bool IsExact(const Endpoint& endpoint);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Returns all TCP addresses of the host. If there is none, returns an empty list and the resolver's
// message in *error.
std::vector<SocketAddress> Resolve(const Endpoint& endpoint, std::string* error);

// Returns the wildcard addresses. The IPv6 address is first, because it accepts IPv4 too. The IPv4
// address is for hosts without IPv6.
std::vector<SocketAddress> AnyInterface(int port);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ENDPOINT_H_
