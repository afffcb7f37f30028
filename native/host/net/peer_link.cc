// SPDX-License-Identifier: Apache-2.0
#include "host/net/peer_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/little_endian.h"
#include "host/net/host_process.h"
#include "host/net/options.h"

namespace nccltune::host::net {
namespace {

constexpr size_t kHeaderBytes = 1 + sizeof(uint32_t);
constexpr int kRetryMs = 20;

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  Descriptor Stream() const {
    return Descriptor(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
};

bool ParseAddress(const std::string& name, SocketAddress* place) {
  if (!IsPath(name)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(name)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(&place->storage, &address, sizeof address);
    place->length = sizeof address;
    return true;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return false;
  name.copy(address.sun_path, name.size());
  std::memcpy(&place->storage, &address, sizeof address);
  place->length = sizeof address;
  return true;
}

}  // namespace

std::pair<std::unique_ptr<PeerLink>, std::unique_ptr<PeerLink>> PeerLink::Pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return {};
  return {std::unique_ptr<PeerLink>(new PeerLink(Descriptor(fds[0]))),
          std::unique_ptr<PeerLink>(new PeerLink(Descriptor(fds[1])))};
}

std::unique_ptr<PeerLink> PeerLink::Connect(bool listens, const std::string& name, int timeout_ms,
                                            std::string* error) {
  SocketAddress place;
  if (!ParseAddress(name, &place)) {
    *error = "the path is too long for a socket";
    return nullptr;
  }
  const auto fail = [error](const char* what) {
    *error = std::string(what) + ": " + std::strerror(errno);
    return nullptr;
  };
  if (listens) {
    const Descriptor listener = place.Stream();
    if (!listener) return fail("no socket");
    const int one = 1;
    setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener.fd(), place.address(), place.length) != 0 || listen(listener.fd(), 1) != 0) {
      return fail("cannot listen");
    }
    pollfd waiting{listener.fd(), POLLIN, 0};
    Descriptor peer(poll(&waiting, 1, timeout_ms) == 1
                        ? accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)
                        : -1);
    if (IsPath(name)) unlink(name.c_str());
    if (peer) return std::unique_ptr<PeerLink>(new PeerLink(std::move(peer)));
    *error = "no process connected";
    return nullptr;
  }
  const int64_t until = NowNs() + kMs * timeout_ms;
  for (;;) {
    Descriptor socket = place.Stream();
    if (!socket) return fail("no socket");
    if (connect(socket.fd(), place.address(), place.length) == 0) {
      return std::unique_ptr<PeerLink>(new PeerLink(std::move(socket)));
    }
    if (NowNs() > until) return fail("cannot connect");
    poll(nullptr, 0, kRetryMs);
  }
}

pid_t PeerLink::peer_process() const {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = getsockopt(socket_.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return known && peer.pid > 0 ? peer.pid : 0;
}

bool PeerLink::Send(PeerMessage type, std::string_view text) {
  std::string frame(1, static_cast<char>(type));
  little_endian::Append(&frame, static_cast<uint32_t>(text.size()));
  frame += text;
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = send(socket_.fd(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void PeerLink::Poll(int timeout_ms, int other_fd) {
  pollfd waiting[2] = {{ended_ ? -1 : socket_.fd(), POLLIN, 0}, {other_fd, POLLIN, 0}};
  if (poll(waiting, 2, timeout_ms) > 0 && waiting[0].revents != 0) Read();
}

void PeerLink::Read() {
  char buffer[16384];
  for (;;) {
    const ssize_t n = recv(socket_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      ended_ = true;
      break;
    }
    unread_.append(buffer, static_cast<size_t>(n));
  }
  size_t at = 0;
  while (unread_.size() - at >= kHeaderBytes) {
    const auto length = little_endian::Get<uint32_t>(unread_, at + 1);
    if (unread_.size() - at - kHeaderBytes < length) break;
    kept_.emplace_back(static_cast<PeerMessage>(unread_[at]),
                       unread_.substr(at + kHeaderBytes, length));
    at += kHeaderBytes + length;
  }
  unread_.erase(0, at);
}

std::optional<std::string> PeerLink::Take(PeerMessage type) {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [type](const auto& message) { return message.first == type; });
  if (found == kept_.end()) return std::nullopt;
  std::string text = std::move(found->second);
  kept_.erase(found);
  return text;
}

bool PeerLink::Has(PeerMessage type) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [type](const auto& message) { return message.first == type; });
}

}  // namespace nccltune::host::net
