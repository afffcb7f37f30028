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

#include "host/net/clock.h"
#include "host/net/options.h"

namespace nccltune::host::net {
namespace {

constexpr size_t kHeaderBytes = 1 + sizeof(uint32_t);
constexpr int kRetryMs = 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct Place {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int Stream() const { return socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); }
};

bool FindPlace(const std::string& name, Place* place) {
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
  return {std::unique_ptr<PeerLink>(new PeerLink(fds[0])),
          std::unique_ptr<PeerLink>(new PeerLink(fds[1]))};
}

std::unique_ptr<PeerLink> PeerLink::Meet(bool listens, const std::string& name, int timeout_ms,
                                         std::string* error) {
  Place place;
  if (!FindPlace(name, &place)) {
    *error = "the path is too long for a socket";
    return nullptr;
  }
  const auto fail = [error](const char* what) {
    *error = std::string(what) + ": " + std::strerror(errno);
    return nullptr;
  };
  if (listens) {
    Socket listener(place.Stream());
    if (listener.get() < 0) return fail("no socket");
    const int one = 1;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener.get(), place.address(), place.length) != 0 ||
        listen(listener.get(), 1) != 0) {
      return fail("cannot listen");
    }
    pollfd waiting{listener.get(), POLLIN, 0};
    const int fd = poll(&waiting, 1, timeout_ms) == 1
                       ? accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)
                       : -1;
    if (IsPath(name)) unlink(name.c_str());
    if (fd >= 0) return std::unique_ptr<PeerLink>(new PeerLink(fd));
    *error = "nobody came";
    return nullptr;
  }
  const int64_t until = NowNs() + kMs * timeout_ms;
  for (;;) {
    Socket socket(place.Stream());
    if (socket.get() < 0) return fail("no socket");
    if (connect(socket.get(), place.address(), place.length) == 0) {
      return std::unique_ptr<PeerLink>(new PeerLink(socket.Release()));
    }
    if (NowNs() > until) return fail("cannot connect");
    poll(nullptr, 0, kRetryMs);
  }
}

pid_t PeerLink::peer_process() const {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return known && peer.pid > 0 ? peer.pid : 0;
}

PeerLink::~PeerLink() { close(fd_); }

bool PeerLink::Say(Word word, std::string_view text) {
  std::string frame(kHeaderBytes, '\0');
  frame[0] = static_cast<char>(word);
  const auto length = static_cast<uint32_t>(text.size());
  std::memcpy(frame.data() + 1, &length, sizeof length);
  frame += text;
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void PeerLink::Listen(int timeout_ms, int other_fd) {
  pollfd waiting[2] = {{ended_ ? -1 : fd_, POLLIN, 0}, {other_fd, POLLIN, 0}};
  if (poll(waiting, 2, timeout_ms) > 0 && waiting[0].revents != 0) Read();
}

void PeerLink::Read() {
  char buffer[16384];
  for (;;) {
    const ssize_t n = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
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
    uint32_t length = 0;
    std::memcpy(&length, unread_.data() + at + 1, sizeof length);
    if (unread_.size() - at - kHeaderBytes < length) break;
    kept_.emplace_back(static_cast<Word>(unread_[at]), unread_.substr(at + kHeaderBytes, length));
    at += kHeaderBytes + length;
  }
  unread_.erase(0, at);
}

std::optional<std::string> PeerLink::Take(Word word) {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [word](const auto& message) { return message.first == word; });
  if (found == kept_.end()) return std::nullopt;
  std::string text = std::move(found->second);
  kept_.erase(found);
  return text;
}

bool PeerLink::Has(Word word) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [word](const auto& message) { return message.first == word; });
}

}  // namespace nccltune::host::net
