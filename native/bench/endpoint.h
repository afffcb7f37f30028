// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_ENDPOINT_H_
#define NCCLTUNE_BENCH_ENDPOINT_H_

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nccltune::bench {

// Where the processes of a run meet.
struct Endpoint {
  std::string host;  // a name, or an address of IPv4 or IPv6
  int port = 0;

  bool operator==(const Endpoint&) const = default;
};

// "host:29500", "10.0.0.1:29500", "[fe80::1%eth0]:29500".
std::optional<Endpoint> ParseEndpoint(std::string_view text);

std::string ToString(const Endpoint& endpoint);

// A host given by its address or as localhost. Rank 0 listens on exactly that; for a name it
// listens on all interfaces, because a host's own name often stands for a loopback address there.
bool IsExact(const Endpoint& endpoint);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// All addresses of the host for TCP. Empty with the resolver's words in *error if there is none.
std::vector<SocketAddress> Resolve(const Endpoint& endpoint, std::string* error);

// All interfaces: IPv6 with IPv4, or IPv4 alone where there is no IPv6.
std::vector<SocketAddress> AnyInterface(int port);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ENDPOINT_H_
