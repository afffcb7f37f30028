// SPDX-License-Identifier: Apache-2.0
// The rendezvous in the processes that connect to process 0.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/rendezvous.h"
#include "bench/step.h"

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{500};
// Time limit for one attempt to connect. With it, one address that never answers cannot use up all
// the time.
constexpr std::chrono::seconds kConnectLimit{5};

class RendezvousClient {
 public:
  explicit RendezvousClient(const RendezvousConfig& config)
      : config_(config), end_(Clock::now() + config.limit) {}

  std::optional<RendezvousError> Run(std::optional<Wire>* wire) {
    for (std::chrono::milliseconds pause = kFirstPause;;
         pause = std::min(2 * pause, kLongestPause)) {
      std::optional<RendezvousError> failure;
      if (Try(&failure)) {
        *wire = Wire(std::move(socket_));
        return std::nullopt;
      }
      if (failure) return failure;
      if (!Wait(-1, 0, std::min(end_, Clock::now() + pause)) && interrupted_) return Interrupted();
      if (Clock::now() >= end_) return TimeoutError();
    }
  }

 private:
  static RendezvousError Interrupted() {
    return {RendezvousError::Kind::kInterrupted, "interrupted", ""};
  }

  RendezvousError TimeoutError() const {
    const std::string limit = InSeconds(config_.limit);
    return {RendezvousError::Kind::kMissingProcess,
            "process " + std::to_string(config_.world.process) + " did not reach process 0 at " +
                ToString(config_.endpoint) + " within " + limit + ": " + last_problem_,
            "check that process 0 is started with the same NCCLTUNE_TOKEN and that this is its "
            "address"};
  }

  // Tries all addresses once. If false is returned and *failure is empty, another attempt may
  // succeed.
  bool Try(std::optional<RendezvousError>* failure) {
    std::string error;
    std::string problem;  // the error at an address that accepted the connection
    const std::vector<SocketAddress> addresses = Resolve(config_.endpoint, &error);
    if (addresses.empty()) last_problem_ = "the host name is not known (" + error + ")";
    for (const SocketAddress& address : addresses) {
      if (!Connect(address)) {
        if (interrupted_) break;
        continue;
      }
      if (Handshake(failure)) return true;
      if (*failure) return false;
      // Another program may own the port on this address, while process 0 listens on another
      // address.
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
    if (connect(socket_.fd(), address.get(), address.length) == 0) return true;
    if (errno != EINPROGRESS) return Problem(errno);
    if (!Wait(socket_.fd(), POLLOUT, std::min(end_, Clock::now() + kConnectLimit))) {
      return Problem(ETIMEDOUT);
    }
    int result = 0;
    socklen_t size = sizeof result;
    getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &result, &size);
    return result == 0 || Problem(result);
  }

  bool Problem(int number) {
    last_problem_ = std::strerror(number);
    return false;
  }

  bool Handshake(std::optional<RendezvousError>* failure) {
    JoinRequest request;
    request.token = config_.token;
    request.process = static_cast<uint32_t>(config_.world.process);
    request.processes = static_cast<uint32_t>(config_.world.processes);
    request.gpus_per_process = static_cast<uint32_t>(config_.world.gpus_per_process);
    const std::string bytes = Serialize(request);
    if (send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      return Problem(errno);
    }
    std::string refusal;
    JoinReply reply = ReadReply(end_, &refusal);
    if (reply == JoinReply::kWelcome) {
      // Process 0 has accepted this process and waits for the others, until one limit after its own
      // start. It may have started later than this process, so `end_` may be too early. With equal
      // limits process 0 decides within one limit from now; the second one is a margin.
      reply = ReadReply(Clock::now() + 2 * config_.limit, &refusal);
      if (reply == JoinReply::kWelcome) return true;
      if (interrupted_) return false;
      if (reply != JoinReply::kRefused) {
        refusal = "process 0 ended before all processes had joined";
      }
      *failure = RendezvousError{RendezvousError::Kind::kMissingProcess, refusal, ""};
    } else if (reply == JoinReply::kRefused) {
      *failure = RendezvousError{
          RendezvousError::Kind::kBadInput, refusal,
          "start all processes of a run with the same options, each with its own rank"};
    } else if (reply == JoinReply::kGarbage) {
      last_problem_ = "the program that listens there is not nccltune-bench";
    } else if (Clock::now() >= end_) {
      last_problem_ = "the program that listens there does not answer";
    } else {
      last_problem_ =
          "the program that listens there closed the connection; process 0 does so for a wrong "
          "token";
    }
    return false;
  }

  // Reads the next reply. Returns kNotYet if the connection closes, the time is over or the wait is
  // interrupted first.
  JoinReply ReadReply(Clock::time_point until, std::string* refusal) {
    std::string received;
    for (;;) {
      size_t missing = 0;
      const JoinReply reply = ParseReply(received, refusal, &missing);
      if (reply != JoinReply::kNotYet) return reply;
      if (!Wait(socket_.fd(), POLLIN, until)) return JoinReply::kNotYet;
      char bytes[kMaxReplyBytes];
      const ssize_t got = recv(socket_.fd(), bytes, missing, 0);
      if (got > 0) {
        received.append(bytes, static_cast<size_t>(got));
      } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        return JoinReply::kNotYet;
      }
    }
  }

  // Waits until the socket is ready. Returns false if the time is over or the wait is interrupted.
  bool Wait(int socket, short events, Clock::time_point until) {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return false;
      pollfd watched[2] = {{config_.interrupt, POLLIN, 0}, {socket, events, 0}};
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

  const RendezvousConfig& config_;
  const Clock::time_point end_;
  Descriptor socket_;
  std::string last_problem_ = "no connection was made";
  bool interrupted_ = false;
};

}  // namespace

std::optional<RendezvousError> JoinRendezvous(const RendezvousConfig& config,
                                              std::optional<Wire>* wire) {
  return RendezvousClient(config).Run(wire);
}

}  // namespace nccltune::bench
