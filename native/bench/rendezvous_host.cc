// SPDX-License-Identifier: Apache-2.0
// The rendezvous in process 0, which listens for the other processes.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>

#include "bench/rendezvous.h"
#include "bench/step.h"

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A connection that sends no complete JoinRequest for this long is closed.
constexpr std::chrono::seconds kIdentifyLimit{5};
// If there are more unidentified connections than this, the oldest is closed.
constexpr size_t kMaxUnidentified = 256;
constexpr int kBacklog = 1024;

Descriptor ListenOn(const SocketAddress& address, int* problem) {
  Descriptor listener(
      socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const int on = 1;
  const int off = 0;
  if (!listener) {
    *problem = errno;
    return listener;
  }
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {
    setsockopt(listener.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(listener.fd(), address.get(), address.length) != 0 ||
      listen(listener.fd(), kBacklog) != 0) {
    *problem = errno;
    listener.Close();
  }
  return listener;
}

// A connection that has not yet sent a complete JoinRequest.
struct UnidentifiedConnection {
  Descriptor socket;
  Clock::time_point since;
  std::string received;
};

// Counts the closed connections by reason, for the error message of a failed rendezvous.
struct RejectedConnections {
  int silent = 0;
  int gone = 0;
  int garbage = 0;
  int wrong_token = 0;

  std::string Words() const {
    std::string words;
    const auto add = [&words](int count, const char* what) {
      if (count == 0) return;
      words += (words.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    };
    add(wrong_token, "with a wrong token");
    add(garbage, "with another protocol");
    add(silent, "that sent nothing");
    add(gone, "that closed at once");
    return words.empty() ? "" : "; rejected connections: " + words;
  }
};

class RendezvousServer {
 public:
  explicit RendezvousServer(const RendezvousConfig& config)
      : config_(config),
        end_(Clock::now() + config.limit),
        joined_(static_cast<size_t>(config.world.processes - 1)) {}

  std::optional<RendezvousError> Run(std::vector<Wire>* wires) {
    if (auto failure = OpenListeners()) return failure;
    while (missing() > 0) {
      if (Clock::now() >= end_) return NotifyJoined(TimeoutError());
      if (auto failure = Poll()) return NotifyJoined(std::move(*failure));
    }
    for (Descriptor& member : joined_) {
      SendAll(member.fd(), SerializeReply(""));
      wires->emplace_back(std::move(member));
    }
    return std::nullopt;
  }

 private:
  size_t missing() const {
    return static_cast<size_t>(std::count_if(joined_.begin(), joined_.end(),
                                             [](const Descriptor& member) { return !member; }));
  }

  std::optional<RendezvousError> OpenListeners() {
    std::string error;
    const bool exact = IsExact(config_.endpoint);
    const std::vector<SocketAddress> addresses =
        exact ? Resolve(config_.endpoint, &error) : AnyInterface(config_.endpoint.port);
    int problem = 0;
    for (const SocketAddress& address : addresses) {
      Descriptor listener = ListenOn(address, &problem);
      if (listener) listeners_.push_back(std::move(listener));
      // The IPv6 wildcard address accepts IPv4 connections too.
      if (!exact && !listeners_.empty()) break;
    }
    if (!listeners_.empty()) return std::nullopt;
    if (error.empty()) error = std::strerror(problem);
    RendezvousError failure{
        RendezvousError::Kind::kBadInput,
        "process 0 cannot listen on " + ToString(config_.endpoint) + ": " + error,
        "name an address of the host of process 0 and a free port"};
    if (problem == EADDRINUSE) failure.hint = "something listens there already: take another port";
    if (problem == EADDRNOTAVAIL) {
      failure.hint = "process 0 runs on a host that does not have this address";
    }
    return failure;
  }

  // Waits once for events and handles them. Returns an error if the rendezvous has failed.
  std::optional<RendezvousError> Poll() {
    std::vector<pollfd> watched;
    watched.push_back({config_.interrupt, POLLIN, 0});
    for (const Descriptor& listener : listeners_) watched.push_back({listener.fd(), POLLIN, 0});
    for (const Descriptor& member : joined_) watched.push_back({member.fd(), POLLIN, 0});
    for (const UnidentifiedConnection& connection : unidentified_) {
      watched.push_back({connection.socket.fd(), POLLIN, 0});
    }
    if (poll(watched.data(), watched.size(), MillisecondsToWait()) < 0 && errno != EINTR) {
      return RendezvousError{RendezvousError::Kind::kMissingProcess,
                             std::string("poll failed: ") + std::strerror(errno), ""};
    }
    auto next = watched.begin();
    if ((next++)->revents != 0) {
      return RendezvousError{RendezvousError::Kind::kInterrupted, "interrupted", ""};
    }
    const auto first_listener = next;
    next += static_cast<std::ptrdiff_t>(listeners_.size());
    for (size_t i = 0; i < joined_.size(); ++i) {
      // A process that has joined sends nothing while it waits, so an event means that it has
      // disconnected.
      if ((next++)->revents == 0) continue;
      return RendezvousError{RendezvousError::Kind::kMissingProcess,
                             "process " + std::to_string(i + 1) +
                                 " joined the rendezvous and ended before all processes had joined",
                             "its standard error may show why"};
    }
    for (auto connection = unidentified_.begin(); connection != unidentified_.end();) {
      const bool readable = (next++)->revents != 0;
      std::optional<RendezvousError> failure;
      const bool keep = readable ? ReadFrom(&*connection, &failure) : WithinTimeLimit(*connection);
      if (failure) return failure;
      connection = keep ? std::next(connection) : unidentified_.erase(connection);
    }
    // Accept last, because new connections would shift the positions that match `watched`.
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (first_listener[static_cast<std::ptrdiff_t>(i)].revents != 0) Accept(listeners_[i]);
    }
    return std::nullopt;
  }

  int MillisecondsToWait() const {
    Clock::time_point until = end_;
    for (const UnidentifiedConnection& connection : unidentified_) {
      until = std::min(until, connection.since + kIdentifyLimit);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
  }

  void Accept(const Descriptor& listener) {
    for (;;) {
      Descriptor socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // If no descriptor is free, close the oldest unidentified connection.
        if ((errno == EMFILE || errno == ENFILE) && !unidentified_.empty()) {
          CloseOldest();
          continue;
        }
        return;
      }
      if (unidentified_.size() >= kMaxUnidentified) CloseOldest();
      unidentified_.push_back({std::move(socket), Clock::now(), ""});
    }
  }

  void CloseOldest() {
    ++rejected_.silent;
    unidentified_.pop_front();
  }

  bool WithinTimeLimit(const UnidentifiedConnection& connection) {
    if (Clock::now() - connection.since < kIdentifyLimit) return true;
    ++rejected_.silent;
    return false;
  }

  // Reads from an unidentified connection. Returns false if the connection must leave the list: its
  // JoinRequest is complete, or the connection must be closed.
  bool ReadFrom(UnidentifiedConnection* connection, std::optional<RendezvousError>* failure) {
    char bytes[kJoinRequestBytes];
    const size_t wanted = kJoinRequestBytes - connection->received.size();
    const ssize_t got = recv(connection->socket.fd(), bytes, wanted, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return WithinTimeLimit(*connection);
    }
    if (got <= 0) {
      ++rejected_.gone;
      return false;
    }
    connection->received.append(bytes, static_cast<size_t>(got));
    if (!MayBeJoinRequest(connection->received)) {
      ++rejected_.garbage;
      return false;
    }
    const std::optional<JoinRequest> request = ParseJoinRequest(connection->received);
    if (!request) return WithinTimeLimit(*connection);
    if (!SameToken(request->token, config_.token)) {
      ++rejected_.wrong_token;
      return false;
    }
    Admit(*request, connection, failure);
    return false;
  }

  void Admit(const JoinRequest& request, UnidentifiedConnection* connection,
             std::optional<RendezvousError>* failure) {
    std::string problem = RejectionReason(request, config_.world);
    if (problem.empty() && joined_[request.process - 1]) {
      problem = "two processes joined as process " + std::to_string(request.process);
    }
    SendAll(connection->socket.fd(), SerializeReply(problem));
    if (problem.empty()) {
      joined_[request.process - 1] = std::move(connection->socket);
    } else {
      *failure = RendezvousError{
          RendezvousError::Kind::kBadInput, std::move(problem),
          "start all processes of a run with the same options, each with its own rank"};
    }
  }

  // Sends without waiting, because the few bytes fit in the empty send buffer of a new connection.
  static void SendAll(int socket, const std::string& bytes) {
    while (send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  RendezvousError TimeoutError() {
    rejected_.silent += static_cast<int>(unidentified_.size());
    std::vector<int> absent;
    for (size_t i = 0; i < joined_.size(); ++i) {
      if (!joined_[i]) absent.push_back(static_cast<int>(i) + 1);
    }
    const std::string limit = InSeconds(config_.limit);
    return {RendezvousError::Kind::kMissingProcess,
            Processes(absent) + " of " + std::to_string(config_.world.processes) +
                " did not connect to " + ToString(config_.endpoint) + " within " + limit +
                rejected_.Words(),
            "check that all are started with the same NCCLTUNE_TOKEN and can reach that address"};
  }

  // Sends the error to all processes that have joined, so that they report it too.
  RendezvousError NotifyJoined(RendezvousError failure) {
    for (const Descriptor& member : joined_) {
      if (member) SendAll(member.fd(), SerializeReply(failure.text));
    }
    return failure;
  }

  const RendezvousConfig& config_;
  const Clock::time_point end_;
  std::vector<Descriptor> listeners_;
  std::vector<Descriptor> joined_;  // connections to processes 1, 2, ...; empty: not joined yet
  std::list<UnidentifiedConnection> unidentified_;
  RejectedConnections rejected_;
};

}  // namespace

std::optional<RendezvousError> HostRendezvous(const RendezvousConfig& config,
                                              std::vector<Wire>* wires) {
  return RendezvousServer(config).Run(wires);
}

}  // namespace nccltune::bench
