// SPDX-License-Identifier: Apache-2.0
#include "net/socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/text.h"
#include "net/clock.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44  // since Linux 6.15
#endif

namespace nccltune::net {
namespace {

// Number of keepalive probes on an idle connection. The first probe is sent after a third of the
// path timeout, the next ones at intervals of a sixth.
constexpr int kProbes = 4;
// Connections that the kernel queues until we accept them. net.core.somaxconn may lower this limit.
// If the queue is full, the kernel drops a SYN, and the peer sends it again a second later.
constexpr int kBacklog = 4096;

void Set(int fd, int level, int option, int value) {
  // These options are optional: the connection works without them.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

// Sets the options of a new socket. TCP_USER_TIMEOUT is not set: it ends a connection whose window
// stays closed for that time, even if the peer's kernel answers every probe (tcp_probe_timer in
// net/ipv4/tcp_timer.c). A window may stay closed because the peer's application is busy for a
// minute. Keepalive checks idle connections; PathWatch checks the others.
void Prepare(int fd, int family, int traffic_class, int path_timeout_ms) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(path_timeout_ms / 3000, 1));
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(path_timeout_ms / 6000, 1));
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  // Without this option, probes of a closed window are up to 120 s apart, which is longer than the
  // path timeout.
  Set(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, std::clamp(path_timeout_ms / 3, 1000, 120'000));
  if (traffic_class >= 0) {
    // NCCL's traffic class is the whole traffic-class byte of the IP header, not only the DSCP in
    // the upper six bits.
    if (family == AF_INET6) Set(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class & 0xff);
    if (family == AF_INET) Set(fd, IPPROTO_IP, IP_TOS, traffic_class & 0xff);
  }
}

IoResult Result(ssize_t bytes) {
  if (bytes >= 0) return {static_cast<size_t>(bytes), 0};
  const int error = errno;
  return {0, error == EWOULDBLOCK || error == EINTR || error == ENOBUFS ? EAGAIN : error};
}

SocketResult Failed() { return {Descriptor(), errno}; }

bool BindTo(int fd, const Nic& nic, uint16_t port) {
  const SocketEndpoint own = WithPort(nic.address, port);
  return bind(fd, reinterpret_cast<const sockaddr*>(&own.storage), own.length()) == 0;
}

}  // namespace

SocketEnd EndBy(int error) {
  // EADDRNOTAVAIL: a NIC without a link loses its IPv6 addresses.
  static constexpr std::array kOutages = {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH,
                                          EHOSTDOWN, ENETDOWN,     EADDRNOTAVAIL};
  return {ErrorWords(error), std::ranges::find(kOutages, error) != kOutages.end()};
}

SocketEnd EndOf(const IoResult& moved) {
  return moved.error != 0 ? EndBy(moved.error) : SocketEnd{"the peer closed the flow"};
}

IoResult ReadSome(int fd, std::span<iovec> into) {
  msghdr message = {};
  message.msg_iov = into.data();
  message.msg_iovlen = into.size();
  return Result(recvmsg(fd, &message, MSG_DONTWAIT));
}

bool HasEnded(int fd) {
  std::byte next{};
  const ssize_t got = recv(fd, &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

IoResult WriteSome(int fd, std::span<iovec> from, int flags) {
  msghdr message = {};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  return Result(sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL | flags));
}

bool ClosingSocket::Step() {
  while (!rest_.empty()) {
    iovec part = {rest_.data(), rest_.size()};
    const IoResult moved = WriteSome(socket_.fd(), {&part, 1});
    if (moved.would_block()) return false;
    if (moved.error != 0) return true;
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(moved.bytes));
    if (rest_.empty()) shutdown(socket_.fd(), SHUT_WR);
  }
  // Read and discard incoming data. If data arrives at a closed socket, or was never read, the
  // connection is reset. A reset loses data that the peer's kernel has not received.
  std::byte unread[4096];
  iovec part = {unread, sizeof(unread)};
  IoResult moved;
  do {
    moved = ReadSome(socket_.fd(), {&part, 1});
  } while (moved.bytes > 0);
  int on_its_way = 0;
  const bool is_known = ioctl(socket_.fd(), SIOCOUTQ, &on_its_way) == 0;
  return !moved.would_block() || !is_known || on_its_way == 0;
}

std::optional<PathFacts> ReadPathFacts(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  PathFacts facts = {.shortest_round_trip_ns = 0, .retransmits = info.tcpi_total_retrans};
  // tcpi_min_rtt exists since Linux 4.6. All its bits are set if there is no sample.
  const bool known = length >= offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt);
  if (known && info.tcpi_min_rtt != UINT32_MAX) {
    facts.shortest_round_trip_ns = int64_t{info.tcpi_min_rtt} * 1000;
  }
  // tcpi_rwnd_limited exists since Linux 4.9.
  if (length >= offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(info.tcpi_rwnd_limited)) {
    facts.busy_ns = static_cast<int64_t>(info.tcpi_busy_time - info.tcpi_rwnd_limited) * 1000;
  }
  facts.unacknowledged = info.tcpi_unacked;
  facts.probes = info.tcpi_probes;
  facts.last_answer_ago_ns = int64_t{info.tcpi_last_ack_recv} * 1'000'000;
  // tcpi_notsent_bytes exists since Linux 4.6.
  if (length >= offsetof(tcp_info, tcpi_notsent_bytes) + sizeof(info.tcpi_notsent_bytes)) {
    facts.unsent = info.tcpi_notsent_bytes;
  }
  return facts;
}

socklen_t SocketEndpoint::length() const {
  return storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

uint16_t SocketEndpoint::port() const {
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void SocketEndpoint::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

std::string SocketEndpoint::Name() const {
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

SocketEndpoint WithPort(const Address& address, uint16_t port) {
  SocketEndpoint end{address.storage};
  end.set_port(port);
  return end;
}

SocketEndpoint LocalEnd(int fd) {
  SocketEndpoint end;
  socklen_t length = sizeof(end.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&end.storage), &length) != 0) return {};
  return end;
}

SocketEndpoint PeerEnd(int fd) {
  SocketEndpoint end;
  socklen_t length = sizeof(end.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&end.storage), &length) != 0) return {};
  return end;
}

SocketResult StartConnecting(const Nic& nic, const SocketEndpoint& peer, int traffic_class,
                             int path_timeout_ms) {
  const int family = peer.storage.ss_family;
  Descriptor made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return Failed();
  Prepare(made.fd(), family, traffic_class, path_timeout_ms);
  // Let the kernel choose the local port at connect, when the peer is known. Connections to
  // different peers may then use the same port.
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

SocketResult ListenOn(const Nic& nic, const PortRange& ports) {
  const int family = nic.address.family();
  Descriptor made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return Failed();
  if (family == AF_INET6) Set(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // Without SO_REUSEADDR, a port of the range is unusable for a minute after each job.
  if (ports.first != 0) Set(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  errno = EADDRINUSE;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    if (!BindTo(made.fd(), nic, static_cast<uint16_t>(port))) {
      if (errno == EADDRINUSE) continue;
      return Failed();
    }
    if (listen(made.fd(), kBacklog) == 0) return {std::move(made), 0};
    // Another socket listens on this port. With SO_REUSEADDR, only listen() reports that. A bound
    // socket cannot be bound again, so a new socket is needed.
    if (errno != EADDRINUSE) return Failed();
    Descriptor again(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!again) return Failed();
    if (family == AF_INET6) Set(again.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    Set(again.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    made = std::move(again);
    errno = EADDRINUSE;
  }
  return Failed();
}

SocketResult AcceptOne(int fd, int traffic_class, int path_timeout_ms) {
  SocketEndpoint peer;
  socklen_t length = sizeof(peer.storage);
  const int taken = accept4(fd, reinterpret_cast<sockaddr*>(&peer.storage), &length,
                            SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (taken < 0) {
    // The caller tries again later after EAGAIN. Most other errors concern only one connection.
    const bool later = errno == EWOULDBLOCK || errno == EINTR;
    return {Descriptor(), later ? EAGAIN : errno};
  }
  Prepare(taken, peer.storage.ss_family, traffic_class, path_timeout_ms);
  return {Descriptor(taken), 0};
}

namespace {

// Number of checks within the time limit.
constexpr int64_t kChecks = 8;

}  // namespace

PathWatch::PathWatch(int path_timeout_ms) : limit_ns_(path_timeout_ms * kNsPerMs) {}

bool PathWatch::IsDead(int64_t now_ns, const PathFacts& facts) {
  next_ns_ = now_ns + limit_ns_ / kChecks;
  if (facts.unacknowledged == 0 && facts.probes == 0) {
    owed_since_ns_.reset();
    armed_ = facts.unsent != 0;
    return false;
  }
  const int64_t answered_ns = now_ns - facts.last_answer_ago_ns;
  // The unacknowledged data may have been sent after the peer's last answer. So the time limit
  // starts at this check.
  if (!owed_since_ns_ || answered_ns > *owed_since_ns_) owed_since_ns_ = now_ns;
  return now_ns - *owed_since_ns_ >= limit_ns_;
}

void PathWatch::Reset() {
  armed_ = false;
  next_ns_ = 0;
  owed_since_ns_.reset();
}

}  // namespace nccltune::net
