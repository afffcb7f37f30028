// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets that never wait, and what every one of ours is set to.
#ifndef NCCLTUNE_NET_SOCKET_H_
#define NCCLTUNE_NET_SOCKET_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/device.h"
#include "net/net_settings.h"

namespace nccltune::net {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { Close(); }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// Of one read or write: bytes, or why none. Zero bytes without an error is the peer's end.
struct Moved {
  size_t bytes = 0;
  int error = 0;  // EAGAIN: later

  bool later() const { return error == EAGAIN; }
};

// strerror, for threads.
std::string ErrorWords(int error);

Moved ReadSome(int fd, std::span<iovec> into);
Moved WriteSome(int fd, std::span<iovec> from, int flags = 0);

// A socket whose last bytes are on their way; it closes with the object.
class Ending {
 public:
  Ending(Socket socket, std::span<const std::byte> rest)
      : socket_(std::move(socket)), rest_(rest.begin(), rest.end()) {}

  // True when nothing is gained by waiting any longer.
  bool Step();

 private:
  Socket socket_;
  std::vector<std::byte> rest_;
};

// What the kernel has seen of the path.
struct PathFacts {
  int64_t shortest_round_trip_ns = 0;  // 0: it does not know
  uint64_t retransmits = 0;            // segments
  // In all, the time with bytes on their way to a peer that had room for them.
  int64_t busy_ns = 0;
};
// Nothing: it does not say.
std::optional<PathFacts> ReadPathFacts(int fd);

// An endpoint of a peer or of ours.
struct Endpoint {
  sockaddr_storage storage = {};

  socklen_t length() const;
  uint16_t port() const;
  void set_port(uint16_t port);
  // 10.0.0.1:4000, [fe80::1%2]:4000
  std::string Name() const;
};

Endpoint WithPort(const Address& address, uint16_t port);
Endpoint LocalEnd(int fd);
Endpoint PeerEnd(int fd);

// An open socket of that family, or errno as a negative number.
struct Opened {
  Socket socket;
  int error = 0;
};

// Bound to the NIC's address and connecting to `peer`.
Opened StartConnecting(const Nic& nic, const Endpoint& peer, int traffic_class);
// How a connect that was started has ended; EINPROGRESS while it has not.
int ConnectResult(int fd);

Opened ListenOn(const Nic& nic, const PortRange& ports);
// A connection that waits at a listening socket; EAGAIN where there is none.
Opened AcceptOne(int fd, int traffic_class);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_SOCKET_H_
