// SPDX-License-Identifier: Apache-2.0
#include "net/socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nccltune::net {
namespace {

// A host that lost its power says nothing: found within a minute, idle or not.
constexpr int kIdleBeforeProbeS = 20;
constexpr int kBetweenProbesS = 10;
constexpr int kProbes = 4;
constexpr int kUserTimeoutMs = 60'000;
constexpr int kBacklog = 128;

void Set(int fd, int level, int option, int value) {
  // All of these are wishes: without one the connection still works.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void Prepare(int fd, int family, int traffic_class) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleBeforeProbeS);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kBetweenProbesS);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (traffic_class >= 0) {
    // NCCL's traffic class is the whole byte, of which DSCP is the upper six bits.
    if (family == AF_INET6) Set(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class & 0xff);
    if (family == AF_INET) Set(fd, IPPROTO_IP, IP_TOS, traffic_class & 0xff);
  }
}

Moved Result(ssize_t bytes) {
  if (bytes >= 0) return {static_cast<size_t>(bytes), 0};
  const int error = errno;
  return {0, error == EWOULDBLOCK || error == EINTR || error == ENOBUFS ? EAGAIN : error};
}

Opened Failed() { return {Socket(), errno}; }

bool BindTo(int fd, const Nic& nic, uint16_t port) {
  const Endpoint own = WithPort(nic.address, port);
  return bind(fd, reinterpret_cast<const sockaddr*>(&own.storage), own.length()) == 0;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Socket::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

std::string ErrorWords(int error) {
  char text[128] = {};
  // The GNU one, which may answer with a text of its own.
  return strerror_r(error, text, sizeof(text));
}

Moved ReadSome(int fd, std::span<iovec> into) {
  msghdr message = {};
  message.msg_iov = into.data();
  message.msg_iovlen = into.size();
  return Result(recvmsg(fd, &message, MSG_DONTWAIT));
}

Moved WriteSome(int fd, std::span<iovec> from, int flags) {
  msghdr message = {};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  return Result(sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL | flags));
}

bool Ending::Step() {
  while (!rest_.empty()) {
    iovec part = {rest_.data(), rest_.size()};
    const Moved moved = WriteSome(socket_.fd(), {&part, 1});
    if (moved.later()) return false;
    if (moved.error != 0) return true;
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(moved.bytes));
    if (rest_.empty()) shutdown(socket_.fd(), SHUT_WR);
  }
  // What comes to a socket that is closed, or was not read before, resets the connection, and what
  // the peer's kernel has not taken by then is lost.
  std::byte unread[4096];
  iovec part = {unread, sizeof(unread)};
  Moved moved;
  do {
    moved = ReadSome(socket_.fd(), {&part, 1});
  } while (moved.bytes > 0);
  int on_its_way = 0;
  const bool told = ioctl(socket_.fd(), SIOCOUTQ, &on_its_way) == 0;
  return !moved.later() || !told || on_its_way == 0;
}

std::optional<PathFacts> ReadPathFacts(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  PathFacts facts = {.shortest_round_trip_ns = 0, .retransmits = info.tcpi_total_retrans};
  // Since Linux 4.6; before, and without a sample, all bits are set.
  const bool known = length >= offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt);
  if (known && info.tcpi_min_rtt != UINT32_MAX) {
    facts.shortest_round_trip_ns = int64_t{info.tcpi_min_rtt} * 1000;
  }
  // Since Linux 4.9.
  if (length >= offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(info.tcpi_rwnd_limited)) {
    facts.busy_ns = static_cast<int64_t>(info.tcpi_busy_time - info.tcpi_rwnd_limited) * 1000;
  }
  return facts;
}

socklen_t Endpoint::length() const {
  return storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

uint16_t Endpoint::port() const {
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void Endpoint::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

std::string Endpoint::Name() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    const std::string scope =
        v6->sin6_scope_id != 0 ? "%" + std::to_string(v6->sin6_scope_id) : std::string();
    return "[" + std::string(text) + scope + "]:" + std::to_string(port());
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof(text));
  return std::string(text) + ":" + std::to_string(port());
}

Endpoint WithPort(const Address& address, uint16_t port) {
  Endpoint end{address.storage};
  end.set_port(port);
  return end;
}

Endpoint LocalEnd(int fd) {
  Endpoint end;
  socklen_t length = sizeof(end.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&end.storage), &length) != 0) return {};
  return end;
}

Endpoint PeerEnd(int fd) {
  Endpoint end;
  socklen_t length = sizeof(end.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&end.storage), &length) != 0) return {};
  return end;
}

Opened StartConnecting(const Nic& nic, const Endpoint& peer, int traffic_class) {
  const int family = peer.storage.ss_family;
  Socket made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.open()) return Failed();
  Prepare(made.fd(), family, traffic_class);
  // The port is chosen at connect, when the peer is known: there are more of them so.
  Set(made.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (nic.address.family() == family && !BindTo(made.fd(), nic, 0)) return Failed();
  const auto* const to = reinterpret_cast<const sockaddr*>(&peer.storage);
  if (connect(made.fd(), to, peer.length()) != 0 && errno != EINPROGRESS) return Failed();
  return {std::move(made), 0};
}

int ConnectResult(int fd) {
  pollfd watched = {fd, POLLOUT, 0};
  const int ready = poll(&watched, 1, 0);
  if (ready < 0) return errno == EINTR ? EINPROGRESS : errno;
  if (ready == 0) return EINPROGRESS;
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

Opened ListenOn(const Nic& nic, const PortRange& ports) {
  const int family = nic.address.family();
  Socket made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.open()) return Failed();
  if (family == AF_INET6) Set(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // Without SO_REUSEADDR a port of the range would rest a minute after each job.
  if (ports.first != 0) Set(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  errno = EADDRINUSE;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    if (!BindTo(made.fd(), nic, static_cast<uint16_t>(port))) {
      if (errno == EADDRINUSE) continue;
      return Failed();
    }
    if (listen(made.fd(), kBacklog) == 0) return {std::move(made), 0};
    // Somebody else listens there: with SO_REUSEADDR only listen() tells. A bound socket stays
    // bound.
    if (errno != EADDRINUSE) return Failed();
    Socket again(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!again.open()) return Failed();
    if (family == AF_INET6) Set(again.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    Set(again.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    made = std::move(again);
    errno = EADDRINUSE;
  }
  return Failed();
}

Opened AcceptOne(int fd, int traffic_class) {
  Endpoint peer;
  socklen_t length = sizeof(peer.storage);
  const int taken = accept4(fd, reinterpret_cast<sockaddr*>(&peer.storage), &length,
                            SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (taken < 0) {
    // A connection that was gone before we took it says nothing of the next one.
    const bool later = errno == EWOULDBLOCK || errno == EINTR;
    return {Socket(), later ? EAGAIN : errno};
  }
  Prepare(taken, peer.storage.ss_family, traffic_class);
  return {Socket(taken), 0};
}

}  // namespace nccltune::net
