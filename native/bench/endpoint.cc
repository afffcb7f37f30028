// SPDX-License-Identifier: Apache-2.0
#include "bench/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "common/text.h"

namespace nccltune::bench {
namespace {

constexpr uint64_t kLastPort = 65535;

bool IsAddress(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  const std::string without_scope = host.substr(0, host.find('%'));
  return inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         inet_pton(AF_INET6, without_scope.c_str(), &six) == 1;
}

}  // namespace

std::optional<Endpoint> ParseEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<uint64_t> port = ParseUnsigned(text.substr(colon + 1));
  if (!port || *port == 0 || *port > kLastPort) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // without brackets, the end of an IPv6 address is ambiguous
  }
  if (host.empty() || host.find_first_of(" \t[]") != std::string_view::npos) return std::nullopt;
  return Endpoint{std::string(host), static_cast<int>(*port)};
}

std::string ToString(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return (six ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

bool IsExact(const Endpoint& endpoint) {
  return endpoint.host == "localhost" || IsAddress(endpoint.host);
}

std::vector<SocketAddress> Resolve(const Endpoint& endpoint, std::string* error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int result = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  std::vector<SocketAddress> addresses;
  if (result != 0) {
    *error = result == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(result);
    return addresses;
  }
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    if (one->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  if (addresses.empty()) *error = "no address";
  return addresses;
}

std::vector<SocketAddress> AnyInterface(int port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  four.sin_port = htons(static_cast<uint16_t>(port));
  std::vector<SocketAddress> addresses(2);
  std::memcpy(&addresses[0].storage, &six, sizeof six);
  addresses[0].length = sizeof six;
  std::memcpy(&addresses[1].storage, &four, sizeof four);
  addresses[1].length = sizeof four;
  return addresses;
}

}  // namespace nccltune::bench
