// SPDX-License-Identifier: Apache-2.0
// Process 0's side of the rendezvous.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>

#include "bench/error_words.h"
#include "bench/handshake.h"
#include "bench/rendezvous.h"

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Who says nothing for that long is sent away.
constexpr std::chrono::seconds kPatience{5};
// More strangers at once push the oldest out.
constexpr size_t kMostStrangers = 256;
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
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {
    setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    *problem = errno;
    listener.Close();
  }
  return listener;
}

// Has connected and not yet said who it is.
struct Stranger {
  Descriptor socket;
  Clock::time_point since;
  std::string said;
};

// Why connections were closed, for the error of a meeting that does not come about.
struct Dismissed {
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
    add(wrong_token, "with another token");
    add(garbage, "that spoke something else");
    add(silent, "that said nothing");
    add(gone, "that went at once");
    return words.empty() ? "" : "; other connections came: " + words;
  }
};

class Reception {
 public:
  explicit Reception(const Meeting& meeting)
      : meeting_(meeting),
        end_(Clock::now() + meeting.limit),
        guests_(static_cast<size_t>(meeting.world.processes - 1)) {}

  std::optional<MeetingFailure> Run(std::vector<Wire>* wires) {
    if (auto failure = OpenListeners()) return failure;
    while (missing() > 0) {
      if (Clock::now() >= end_) return Refuse(NobodyCame());
      if (auto failure = Poll()) return Refuse(std::move(*failure));
    }
    for (Descriptor& guest : guests_) {
      SendAll(guest.get(), WrittenAnswer(""));
      wires->emplace_back(std::move(guest));
    }
    return std::nullopt;
  }

 private:
  size_t missing() const {
    return static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(),
                                             [](const Descriptor& guest) { return !guest; }));
  }

  std::optional<MeetingFailure> OpenListeners() {
    std::string error;
    const bool exact = IsExact(meeting_.endpoint);
    const std::vector<SocketAddress> addresses =
        exact ? Resolve(meeting_.endpoint, &error) : AnyInterface(meeting_.endpoint.port);
    int problem = 0;
    for (const SocketAddress& address : addresses) {
      Descriptor listener = ListenOn(address, &problem);
      if (listener) listeners_.push_back(std::move(listener));
      // The wildcard of IPv6 takes IPv4 as well.
      if (!exact && !listeners_.empty()) break;
    }
    if (!listeners_.empty()) return std::nullopt;
    if (error.empty()) error = std::strerror(problem);
    MeetingFailure failure{
        MeetingFailure::Kind::kBadInput,
        "process 0 cannot listen on " + ToString(meeting_.endpoint) + ": " + error,
        "name an address of the host of process 0 and a free port"};
    if (problem == EADDRINUSE) failure.hint = "something listens there already: take another port";
    if (problem == EADDRNOTAVAIL) {
      failure.hint = "process 0 runs on a host that does not have this address";
    }
    return failure;
  }

  // One round of waiting and of what has come.
  std::optional<MeetingFailure> Poll() {
    std::vector<pollfd> watched;
    watched.push_back({meeting_.interrupt, POLLIN, 0});
    for (const Descriptor& listener : listeners_) watched.push_back({listener.get(), POLLIN, 0});
    for (const Descriptor& guest : guests_) watched.push_back({guest.get(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) {
      watched.push_back({stranger.socket.get(), POLLIN, 0});
    }
    if (poll(watched.data(), watched.size(), MillisecondsToWait()) < 0 && errno != EINTR) {
      return MeetingFailure{MeetingFailure::Kind::kNobody,
                            std::string("poll failed: ") + std::strerror(errno), ""};
    }
    auto next = watched.begin();
    if ((next++)->revents != 0) {
      return MeetingFailure{MeetingFailure::Kind::kInterrupted, "interrupted", ""};
    }
    const auto listeners = next;
    next += static_cast<std::ptrdiff_t>(listeners_.size());
    for (size_t i = 0; i < guests_.size(); ++i) {
      // It waits for the others and has nothing to say: it goes.
      if ((next++)->revents == 0) continue;
      return MeetingFailure{MeetingFailure::Kind::kNobody,
                            "process " + std::to_string(i + 1) +
                                " came to the rendezvous and ended before all were there",
                            "its own standard error may say why"};
    }
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      const bool spoke = (next++)->revents != 0;
      std::optional<MeetingFailure> failure;
      const bool stays = spoke ? Hear(&*stranger, &failure) : IsPatient(*stranger);
      if (failure) return failure;
      stranger = stays ? std::next(stranger) : strangers_.erase(stranger);
    }
    // After the strangers, whose places in `watched` count on nobody new.
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (listeners[static_cast<std::ptrdiff_t>(i)].revents != 0) Accept(listeners_[i]);
    }
    return std::nullopt;
  }

  int MillisecondsToWait() const {
    Clock::time_point until = end_;
    for (const Stranger& stranger : strangers_) until = std::min(until, stranger.since + kPatience);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
  }

  void Accept(const Descriptor& listener) {
    for (;;) {
      Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // Without a free descriptor the oldest stranger makes room.
        if ((errno == EMFILE || errno == ENFILE) && !strangers_.empty()) {
          DismissOldest();
          continue;
        }
        return;
      }
      if (strangers_.size() >= kMostStrangers) DismissOldest();
      strangers_.push_back({std::move(socket), Clock::now(), ""});
    }
  }

  void DismissOldest() {
    ++dismissed_.silent;
    strangers_.pop_front();
  }

  bool IsPatient(const Stranger& stranger) {
    if (Clock::now() - stranger.since < kPatience) return true;
    ++dismissed_.silent;
    return false;
  }

  // Reads what a stranger says. False: it is a stranger no more, or goes.
  bool Hear(Stranger* stranger, std::optional<MeetingFailure>* failure) {
    char bytes[kArrivalBytes];
    const size_t wanted = kArrivalBytes - stranger->said.size();
    const ssize_t got = recv(stranger->socket.get(), bytes, wanted, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return IsPatient(*stranger);
    }
    if (got <= 0) {
      ++dismissed_.gone;
      return false;
    }
    stranger->said.append(bytes, static_cast<size_t>(got));
    if (!MayBeArrival(stranger->said)) {
      ++dismissed_.garbage;
      return false;
    }
    const std::optional<Arrival> arrival = ReadArrival(stranger->said);
    if (!arrival) return IsPatient(*stranger);
    if (!SameToken(arrival->token, meeting_.token)) {
      ++dismissed_.wrong_token;
      return false;
    }
    Welcome(*arrival, stranger, failure);
    return false;
  }

  void Welcome(const Arrival& arrival, Stranger* stranger, std::optional<MeetingFailure>* failure) {
    std::string problem = Contradiction(arrival, meeting_.world);
    if (problem.empty() && guests_[arrival.process - 1]) {
      problem = "two processes say that they are process " + std::to_string(arrival.process);
    }
    SendAll(stranger->socket.get(), WrittenAnswer(problem));
    if (problem.empty()) {
      guests_[arrival.process - 1] = std::move(stranger->socket);
    } else {
      *failure = MeetingFailure{MeetingFailure::Kind::kBadInput, std::move(problem),
                                "start all processes of a run alike, each with its own rank"};
    }
  }

  // A few bytes on a connection that has sent none before: they fit its buffer.
  static void SendAll(int socket, const std::string& bytes) {
    while (send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  MeetingFailure NobodyCame() {
    dismissed_.silent += static_cast<int>(strangers_.size());
    std::vector<int> absent;
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (!guests_[i]) absent.push_back(static_cast<int>(i) + 1);
    }
    const std::string limit = InSeconds(meeting_.limit);
    return {MeetingFailure::Kind::kNobody,
            Processes(absent) + " of " + std::to_string(meeting_.world.processes) +
                " never came to " + ToString(meeting_.endpoint) + " within " + limit +
                dismissed_.Words(),
            "are all started, with the same NCCLTUNE_TOKEN, and can they reach that address?"};
  }

  // Tells those who wait why they wait in vain.
  MeetingFailure Refuse(MeetingFailure failure) {
    for (const Descriptor& guest : guests_) {
      if (guest) SendAll(guest.get(), WrittenAnswer(failure.text));
    }
    return failure;
  }

  const Meeting& meeting_;
  const Clock::time_point end_;
  std::vector<Descriptor> listeners_;
  std::vector<Descriptor> guests_;  // of process 1 and on; none: not there yet
  std::list<Stranger> strangers_;
  Dismissed dismissed_;
};

}  // namespace

std::optional<MeetingFailure> Host(const Meeting& meeting, std::vector<Wire>* wires) {
  return Reception(meeting).Run(wires);
}

}  // namespace nccltune::bench
