// SPDX-License-Identifier: Apache-2.0
// Non-blocking TCP sockets and their options.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "net/device_table.h"
#include "net/net_settings.h"

namespace nccltune::net {

// The result of one read or write: the number of bytes, or an error. Zero bytes without an error
// mean the end of the stream.
struct IoResult {
  size_t bytes = 0;
  int error = 0;  // EAGAIN: try again later

  bool would_block() const { return error == EAGAIN; }
};

// Why a TCP connection ended or could not be made.
struct SocketEnd {
  std::string why;
  bool is_outage = false;  // the peer's host does not answer, so the network may return
};
SocketEnd EndBy(int error);
// Returns why a read ended the connection.
SocketEnd EndOf(const IoResult& moved);

IoResult ReadSome(int fd, std::span<iovec> into);
// Returns whether the peer has closed the socket or is gone, and no bytes are left to read.
bool HasEnded(int fd);
IoResult WriteSome(int fd, std::span<iovec> from, int flags = 0);

// A socket whose last bytes are still being sent. The destructor closes the socket.
class ClosingSocket {
 public:
  ClosingSocket(Descriptor socket, std::span<const std::byte> rest)
      : socket_(std::move(socket)), rest_(rest.begin(), rest.end()) {}

  // Sends more bytes without blocking. Returns true when the socket can be closed: the peer's
  // kernel has received all bytes, or the connection has failed.
  bool Step();

 private:
  Descriptor socket_;
  std::vector<std::byte> rest_;
};

// The kernel's measurements of a socket's path (TCP_INFO).
struct PathFacts {
  int64_t shortest_round_trip_ns = 0;  // 0: unknown
  uint64_t retransmits = 0;            // retransmitted segments
  // Total time with bytes in flight while the peer had room for them.
  int64_t busy_ns = 0;

  // Segments and probes that the peer's kernel has not acknowledged. The kernel probes a closed
  // window and an idle connection.
  uint32_t unacknowledged = 0;
  uint32_t probes = 0;
  uint32_t unsent = 0;             // bytes in the send queue that were never sent
  int64_t last_answer_ago_ns = 0;  // time since the last acknowledgement of any kind
};
// Returns the measurements of the socket `fd`, or nothing if the kernel call fails.
std::optional<PathFacts> ReadPathFacts(int fd);

// An address with a port, of this host or of a peer.
struct SocketEndpoint {
  sockaddr_storage storage = {};

  socklen_t length() const;
  uint16_t port() const;
  void set_port(uint16_t port);
  // Returns "10.0.0.1:4000" or "[fe80::1%2]:4000".
  std::string Name() const;
};

SocketEndpoint WithPort(const Address& address, uint16_t port);
SocketEndpoint LocalEnd(int fd);
SocketEndpoint PeerEnd(int fd);

// An open socket; on failure, no socket and the errno value.
struct SocketResult {
  Descriptor socket;
  int error = 0;
};

// Starts to connect to `peer` from the NIC's address.
SocketResult StartConnecting(const Nic& nic, const SocketEndpoint& peer, int traffic_class,
                             int path_timeout_ms = kPathTimeoutMs);
// Returns 0 if a started connect has succeeded, EINPROGRESS while it runs, or the error (errno)
// with which it failed.
int ConnectResult(int fd);

SocketResult ListenOn(const Nic& nic, const PortRange& ports);
// Accepts a waiting connection. The error is EAGAIN if no connection waits.
SocketResult AcceptOne(int fd, int traffic_class, int path_timeout_ms = kPathTimeoutMs);

// Decides whether the peer's host still answers. Times and the kernel's facts are arguments, so
// that tests need no clock and no socket.

// Watches the path of one socket. The path is dead if the peer's kernel owes an acknowledgement (of
// segments or probes) and sends none within the time limit. If the peer's application does not
// read, the TCP window closes, but the peer's kernel still answers probes: the flow is alive. Idle
// connections are checked by keepalive.
class PathWatch {
 public:
  explicit PathWatch(int path_timeout_ms);

  // Call this after bytes were written to the socket.
  void Wrote() { armed_ = true; }
  // Returns when IsDead must be called at the latest; INT64_MAX if no acknowledgement is owed.
  int64_t NextNs() const { return armed_ ? next_ns_ : INT64_MAX; }
  bool Due(int64_t now_ns) const { return armed_ && now_ns >= next_ns_; }

  bool IsDead(int64_t now_ns, const PathFacts& facts);

  // Resets the state for another socket.
  void Reset();

 private:
  int64_t limit_ns_;
  bool armed_ = false;
  int64_t next_ns_ = 0;
  std::optional<int64_t> owed_since_ns_;
};

}  // namespace nccltune::net
