// SPDX-License-Identifier: Apache-2.0
#include "host/net/host_process.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>

#include "common/little_endian.h"
#include "host/net/net_plugin.h"

namespace nccltune::host::net {
namespace {

constexpr size_t kHeaderBytes = 1 + sizeof(uint32_t);
constexpr int kRetryMs = 20;
constexpr int kPollMs = 200;
constexpr int kClosingMs = 2000;

// What the signal handler writes, which may only use this and write.
char no_progress[64] = {};

void EndWhatDoesNotReturn(int /*signal*/) {
  const char* const call = NetPlugin::CallInProgress();
  char line[128];
  size_t length = 0;
  const auto add = [&](const char* text) {
    while (*text != '\0') line[length++] = *text++;
  };
  add(no_progress);
  if (call != nullptr) {
    add(": ");
    add(call);
    add(" does not return");
  }
  add("\n");
  static_cast<void>(write(STDERR_FILENO, line, length) == 0);
  _exit(kFailed);
}

// Of both forked ranks: whether one has reported its error.
std::atomic<bool>* has_reported = nullptr;

Descriptor Stream() { return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

}  // namespace

bool ShareReport() {
  void* const page = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  has_reported = new (page) std::atomic<bool>(false);
  return true;
}

std::pair<std::unique_ptr<PeerLink>, std::unique_ptr<PeerLink>> PeerLink::Pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return {};
  return {std::unique_ptr<PeerLink>(new PeerLink(Descriptor(fds[0]))),
          std::unique_ptr<PeerLink>(new PeerLink(Descriptor(fds[1])))};
}

std::unique_ptr<PeerLink> PeerLink::Connect(bool listens, const std::string& path, int timeout_ms,
                                            std::string* error) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  if (path.size() >= sizeof place.sun_path) {
    *error = "the path is too long for a socket";
    return nullptr;
  }
  path.copy(place.sun_path, path.size());
  const auto* const address = reinterpret_cast<const sockaddr*>(&place);
  const auto fail = [error](const char* what) {
    *error = std::string(what) + ": " + std::strerror(errno);
    return nullptr;
  };
  if (listens) {
    const Descriptor listener = Stream();
    if (!listener || bind(listener.fd(), address, sizeof place) != 0 ||
        listen(listener.fd(), 1) != 0) {
      return fail("cannot listen");
    }
    pollfd waiting{listener.fd(), POLLIN, 0};
    Descriptor peer(poll(&waiting, 1, timeout_ms) == 1
                        ? accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)
                        : -1);
    unlink(path.c_str());
    if (peer) return std::unique_ptr<PeerLink>(new PeerLink(std::move(peer)));
    *error = "no process connected";
    return nullptr;
  }
  const int64_t until = NowNs() + kMs * timeout_ms;
  for (;;) {
    Descriptor socket = Stream();
    if (!socket) return fail("no socket");
    if (connect(socket.fd(), address, sizeof place) == 0) {
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

void PeerLink::Send(PeerMessage type, std::string_view text) {
  std::string frame(1, static_cast<char>(type));
  little_endian::Append(&frame, static_cast<uint32_t>(text.size()));
  frame += text;
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = send(socket_.fd(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    sent += static_cast<size_t>(n);
  }
}

void PeerLink::Poll(int timeout_ms) {
  pollfd waiting = {ended_ ? -1 : socket_.fd(), POLLIN, 0};
  if (poll(&waiting, 1, timeout_ms) <= 0) return;
  char buffer[16384];
  for (;;) {
    const ssize_t n = recv(socket_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    ended_ = n <= 0;
    if (ended_) break;
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

HostProcess::HostProcess(const NetCheckOptions& options, int rank, std::unique_ptr<PeerLink> link,
                         pid_t peer)
    : options_(options),
      rank_(rank),
      // If both ranks hang, rank 0 reports.
      most_seconds_(2 * static_cast<unsigned>(options.timeout_s) + static_cast<unsigned>(rank)),
      link_(std::move(link)),
      peer_(peer) {
  std::snprintf(no_progress, sizeof no_progress, "error: rank %d: no progress for %u s", rank,
                most_seconds_);
  signal(SIGALRM, EndWhatDoesNotReturn);
  alarm(most_seconds_);
}

void HostProcess::Fail(const std::string& text) {
  // An error here may be caused by an earlier error in the other process, which is then reported
  // instead.
  Look(kPollMs);
  const std::string failure = "rank " + std::to_string(rank_) + ": " + text;
  Send(PeerMessage::kFailure, failure);
  if (has_reported != nullptr && has_reported->exchange(true)) _exit(kPeerVanished);
  std::fprintf(stderr, "error: %s\n", failure.c_str());
  _exit(kFailed);
}

void HostProcess::Look(int wait_ms) {
  alarm(most_seconds_);
  link_->Poll(wait_ms);
  if (link_->Take(PeerMessage::kClosing)) peer_closing_ = true;
  const std::optional<std::string> failure = link_->Take(PeerMessage::kFailure);
  // If this process killed the peer, it goes on, because the plugin must report the error.
  if (!failure && (!link_->ended() || peer_killed())) return;
  if (options_.fork) _exit(kPeerVanished);
  std::fprintf(stderr, "error: %s\n",
               failure ? failure->c_str() : "the other process ended during the run");
  _exit(kFailed);
}

bool HostProcess::ExpectsLoss() {
  if (peer_killed()) return true;
  if (!options_.close_in_flight) return false;
  // The peer's kClosing message uses another connection and may arrive after the plugin has noticed
  // the close.
  for (int i = 0; i < kClosingMs && !peer_closing_; ++i) Look(1);
  return peer_closing_;
}

void HostProcess::PluginError(const std::string& where, const char* call, abi::Result result) {
  if (!ExpectsLoss()) Fail(where + ": " + call + " returned " + ResultName(result));
  if (!loss_) loss_ = PeerLossError{call, ResultName(result)};
}

std::optional<std::string> HostProcess::Take(PeerMessage type) {
  std::optional<std::string> text = link_->Take(type);
  if (text) return text;
  Look();
  return link_->Take(type);
}

std::string HostProcess::Await(PeerMessage type) {
  for (;;) {
    if (std::optional<std::string> text = link_->Take(type)) return *text;
    Look(kPollMs);
  }
}

void HostProcess::Barrier() {
  Send(PeerMessage::kBarrier, {});
  Await(PeerMessage::kBarrier);
}

void HostProcess::StartRound() {
  peer_closing_ = false;
  loss_.reset();
}

void HostProcess::KillPeer() {
  peer_killed_ = true;
  kill(peer_, SIGKILL);
}

}  // namespace nccltune::host::net
