// SPDX-License-Identifier: Apache-2.0
#include "bench/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/little_endian.h"
#include "common/text.h"

namespace nccltune::bench {
namespace {

constexpr std::string_view kMagic = "nccltune";
constexpr size_t kVersionAt = 8;
constexpr size_t kTokenAt = 12;
constexpr size_t kNumbersAt = 28;
constexpr size_t kAnswerHead = 8 + 2;
static_assert(kMagic.size() == kVersionAt);

bool BeginsWithMagic(std::string_view begun) {
  const size_t known = std::min(begun.size(), kMagic.size());
  return begun.substr(0, known) == kMagic.substr(0, known);
}

}  // namespace

std::string Serialize(const JoinRequest& request) {
  std::string bytes(kMagic);
  little_endian::Append(&bytes, request.version);
  for (const std::byte byte : request.token) bytes.push_back(static_cast<char>(byte));
  little_endian::Append(&bytes, request.process);
  little_endian::Append(&bytes, request.processes);
  little_endian::Append(&bytes, request.gpus_per_process);
  return bytes;
}

bool MayBeJoinRequest(std::string_view begun) {
  return begun.size() <= kJoinRequestBytes && BeginsWithMagic(begun);
}

std::optional<JoinRequest> ParseJoinRequest(std::string_view bytes) {
  if (bytes.size() != kJoinRequestBytes || !BeginsWithMagic(bytes)) return std::nullopt;
  JoinRequest request;
  request.version = little_endian::Get<uint32_t>(bytes, kVersionAt);
  for (size_t i = 0; i < request.token.size(); ++i) {
    request.token[i] = static_cast<std::byte>(bytes[kTokenAt + i]);
  }
  request.process = little_endian::Get<uint32_t>(bytes, kNumbersAt);
  request.processes = little_endian::Get<uint32_t>(bytes, kNumbersAt + 4);
  request.gpus_per_process = little_endian::Get<uint32_t>(bytes, kNumbersAt + 8);
  return request;
}

std::string RejectionReason(const JoinRequest& request, const World& world) {
  if (request.version != kWireVersion) {
    return "a process runs another version of nccltune-bench (" + std::to_string(request.version) +
           ", not " + std::to_string(kWireVersion) + ")";
  }
  const std::string who = "process " + std::to_string(request.process);
  if (request.processes != static_cast<uint32_t>(world.processes)) {
    return who + " was started as one of " + std::to_string(request.processes) +
           ", process 0 as one of " + std::to_string(world.processes);
  }
  if (request.process == 0 || request.process >= request.processes) {
    return "a process joined as " + who + "; expected 1 to " +
           std::to_string(request.processes - 1);
  }
  if (request.gpus_per_process != static_cast<uint32_t>(world.gpus_per_process)) {
    return who + " has " + std::to_string(request.gpus_per_process) +
           " GPUs per process, process 0 has " + std::to_string(world.gpus_per_process);
  }
  return "";
}

std::string SerializeReply(std::string_view refusal) {
  refusal = refusal.substr(0, kMaxReplyBytes - kAnswerHead);
  std::string bytes(kMagic);
  little_endian::Append(&bytes, static_cast<uint16_t>(refusal.size()));
  bytes += refusal;
  return bytes;
}

JoinReply ParseReply(std::string_view begun, std::string* refusal, size_t* missing) {
  if (!BeginsWithMagic(begun)) return JoinReply::kGarbage;
  if (begun.size() < kAnswerHead) {
    *missing = kAnswerHead - begun.size();
    return JoinReply::kNotYet;
  }
  const size_t length = little_endian::Get<uint16_t>(begun, kMagic.size());
  if (length > kMaxReplyBytes - kAnswerHead) return JoinReply::kGarbage;
  if (begun.size() < kAnswerHead + length) {
    *missing = kAnswerHead + length - begun.size();
    return JoinReply::kNotYet;
  }
  *refusal = begun.substr(kAnswerHead, length);
  return length == 0 ? JoinReply::kWelcome : JoinReply::kRefused;
}

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
