// SPDX-License-Identifier: Apache-2.0
// The other processes' side of the rendezvous.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/error_words.h"
#include "bench/handshake.h"
#include "bench/rendezvous.h"

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{500};
// A host that does not answer at all costs no more of the time there is.
constexpr std::chrono::seconds kConnectPatience{5};

class Visitor {
 public:
  explicit Visitor(const Meeting& meeting)
      : meeting_(meeting), end_(Clock::now() + meeting.limit) {}

  std::optional<MeetingFailure> Run(std::optional<Wire>* wire) {
    for (std::chrono::milliseconds pause = kFirstPause;;
         pause = std::min(2 * pause, kLongestPause)) {
      std::optional<MeetingFailure> failure;
      if (Try(&failure)) {
        *wire = Wire(std::move(socket_));
        return std::nullopt;
      }
      if (failure) return failure;
      if (!Wait(-1, 0, std::min(end_, Clock::now() + pause)) && interrupted_) return Interrupted();
      if (Clock::now() >= end_) return NotThere();
    }
  }

 private:
  static MeetingFailure Interrupted() {
    return {MeetingFailure::Kind::kInterrupted, "interrupted", ""};
  }

  MeetingFailure NotThere() const {
    const std::string limit = InSeconds(meeting_.limit);
    return {MeetingFailure::Kind::kNobody,
            "process " + std::to_string(meeting_.world.process) + " did not reach process 0 at " +
                ToString(meeting_.endpoint) + " within " + limit + ": " + last_problem_,
            "is process 0 started, with the same NCCLTUNE_TOKEN, and is that its address?"};
  }

  // One attempt. False without *failure: worth another.
  bool Try(std::optional<MeetingFailure>* failure) {
    std::string error;
    std::string problem;  // of an address where somebody listens
    const std::vector<SocketAddress> addresses = Resolve(meeting_.endpoint, &error);
    if (addresses.empty()) last_problem_ = "the host name is not known (" + error + ")";
    for (const SocketAddress& address : addresses) {
      if (!Connect(address)) {
        if (interrupted_) break;
        continue;
      }
      if (Introduce(failure)) return true;
      if (*failure) return false;
      // Somebody else may have the port on this address alone.
      problem = last_problem_;
    }
    if (!problem.empty()) last_problem_ = problem;
    if (interrupted_) *failure = Interrupted();
    return false;
  }

  bool Connect(const SocketAddress& address) {
    socket_ = Descriptor(
        socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!socket_) return Problem(errno);
    if (connect(socket_.get(), address.get(), address.length) == 0) return true;
    if (errno != EINPROGRESS) return Problem(errno);
    if (!Wait(socket_.get(), POLLOUT, std::min(end_, Clock::now() + kConnectPatience))) {
      return Problem(ETIMEDOUT);
    }
    int result = 0;
    socklen_t size = sizeof result;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &result, &size);
    return result == 0 || Problem(result);
  }

  bool Problem(int number) {
    last_problem_ = std::strerror(number);
    return false;
  }

  bool Introduce(std::optional<MeetingFailure>* failure) {
    Arrival arrival;
    arrival.token = meeting_.token;
    arrival.process = static_cast<uint32_t>(meeting_.world.process);
    arrival.processes = static_cast<uint32_t>(meeting_.world.processes);
    arrival.gpus_per_process = static_cast<uint32_t>(meeting_.world.gpus_per_process);
    const std::string bytes = Written(arrival);
    if (send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      return Problem(errno);
    }
    std::string refusal;
    Answered answered = Hear(end_, &refusal);
    if (answered == Answered::kWelcome) {
      // Known to process 0: now it decides how long to wait for the others. It may have begun later
      // than this process.
      answered = Hear(Clock::now() + 2 * meeting_.limit, &refusal);
      if (answered == Answered::kWelcome) return true;
      if (interrupted_) return false;
      if (answered != Answered::kRefused) {
        refusal = "process 0 ended before all processes were there";
      }
      *failure = MeetingFailure{MeetingFailure::Kind::kNobody, refusal, ""};
    } else if (answered == Answered::kRefused) {
      *failure = MeetingFailure{MeetingFailure::Kind::kBadInput, refusal,
                                "start all processes of a run alike, each with its own rank"};
    } else if (answered == Answered::kGarbage) {
      last_problem_ = "what listens there is not nccltune-bench";
    } else if (Clock::now() >= end_) {
      last_problem_ = "whoever listens there does not answer";
    } else {
      last_problem_ = "whoever listens there closed the connection, as at a wrong token";
    }
    return false;
  }

  // The next answer; kNotYet if the connection ends or the time is over first.
  Answered Hear(Clock::time_point until, std::string* refusal) {
    std::string heard;
    for (;;) {
      size_t missing = 0;
      const Answered answered = ReadAnswer(heard, refusal, &missing);
      if (answered != Answered::kNotYet) return answered;
      if (!Wait(socket_.get(), POLLIN, until)) return Answered::kNotYet;
      char bytes[kMostAnswerBytes];
      const ssize_t got = recv(socket_.get(), bytes, missing, 0);
      if (got > 0) {
        heard.append(bytes, static_cast<size_t>(got));
      } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        return Answered::kNotYet;
      }
    }
  }

  // Until the socket is ready; false when the time is over or somebody interrupts.
  bool Wait(int socket, short events, Clock::time_point until) {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return false;
      pollfd watched[2] = {{meeting_.interrupt, POLLIN, 0}, {socket, events, 0}};
      const int ready = poll(watched, 2, static_cast<int>(std::min<int64_t>(left, 1000)));
      if (ready < 0 && errno != EINTR) return false;
      if (ready <= 0) continue;
      if (watched[0].revents != 0) {
        interrupted_ = true;
        return false;
      }
      if (watched[1].revents != 0) return true;
    }
  }

  const Meeting& meeting_;
  const Clock::time_point end_;
  Descriptor socket_;
  std::string last_problem_ = "nobody answered";
  bool interrupted_ = false;
};

}  // namespace

std::optional<MeetingFailure> Join(const Meeting& meeting, std::optional<Wire>* wire) {
  return Visitor(meeting).Run(wire);
}

}  // namespace nccltune::bench
