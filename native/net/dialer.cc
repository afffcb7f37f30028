// SPDX-License-Identifier: Apache-2.0
#include "net/dialer.h"

#include <cerrno>

#include "net/clock.h"
#include "net/descriptors.h"

namespace nccltune::net {
namespace {

// Time limit of a TCP connect. The kernel of a reachable host answers much earlier.
constexpr int64_t kConnectLimitNs = 20 * kNsPerSecond;
// The same of a flow that reconnects. During an outage the kernel waits longer and longer between
// its attempts, so a new socket notices the end of the outage earlier.
constexpr int64_t kReconnectLimitNs = 5 * kNsPerSecond;
// Time limit for the welcome of a flow that reconnects. A pool thread of the peer sends the welcome
// at once, without waiting for the peer's application.
constexpr int64_t kReconnectWelcomeNs = 10 * kNsPerSecond;
constexpr const char* kNoAnswer = "no answer";

}  // namespace

Dialer::Dialer(const Nic& nic, const SocketEndpoint& peer, const Hello& hello, int traffic_class,
               int path_timeout_ms)
    : nic_(nic),
      peer_(peer),
      hello_(hello),
      traffic_class_(traffic_class),
      path_timeout_ms_(path_timeout_ms),
      path_(path_timeout_ms),
      connect_limit_ns_(kConnectLimitNs) {}

void Dialer::ReconnectFromNowOn() {
  connect_limit_ns_ = kReconnectLimitNs;
  welcome_limit_ns_ = kReconnectWelcomeNs;
}

void Dialer::Start(int64_t now_ns) {
  connected_ = false;
  hello_sent_ = 0;
  welcome_received_ = 0;
  started_ns_ = now_ns;
  hello_bytes_ = Encode(hello_);
  state_ = State::kWorking;
  shortage_ = 0;
  path_.Reset();
  SocketResult opened = StartConnecting(nic_, peer_, traffic_class_, path_timeout_ms_);
  socket_ = std::move(opened.socket);
  if (!socket_) FailBy("connect", opened.error);
}

Dialer::State Dialer::Step(int64_t now_ns) {
  if (state_ != State::kWorking) return state_;
  const int64_t limit_ns = connected_ ? welcome_limit_ns_ : connect_limit_ns_;
  if (now_ns - started_ns_ > limit_ns) return Fail(State::kFailed, {kNoAnswer, true});
  if (!connected_) {
    const int error = ConnectResult(socket_.fd());
    if (error == EINPROGRESS) return state_;
    if (error != 0) return FailBy("connect", error);
    connected_ = true;
  }
  while (hello_sent_ < hello_bytes_.size()) {
    iovec rest = {hello_bytes_.data() + hello_sent_, hello_bytes_.size() - hello_sent_};
    const IoResult moved = WriteSome(socket_.fd(), {&rest, 1});
    if (moved.would_block()) return state_;
    if (moved.error != 0) return FailBy("hello", moved.error);
    hello_sent_ += moved.bytes;
    path_.Wrote();
  }
  if (path_.Due(now_ns)) {
    const std::optional<PathFacts> facts = ReadPathFacts(socket_.fd());
    if (facts && path_.IsDead(now_ns, *facts)) return Fail(State::kFailed, {kNoAnswer, true});
  }
  while (welcome_received_ < welcome_bytes_.size()) {
    iovec rest = {welcome_bytes_.data() + welcome_received_,
                  welcome_bytes_.size() - welcome_received_};
    const IoResult moved = ReadSome(socket_.fd(), {&rest, 1});
    if (moved.would_block()) return state_;
    if (moved.error != 0) return FailBy("welcome", moved.error);
    if (moved.bytes == 0) return Fail(State::kFailed, {"closed without a welcome"});
    welcome_received_ += moved.bytes;
  }
  const std::optional<Welcome> welcome = DecodeWelcome(welcome_bytes_);
  if (!welcome) return Fail(State::kRejected, {"the listener is not nccltune"});
  if (welcome->status == WelcomeStatus::kTaken && welcome->release == kWireRelease) {
    return state_ = State::kReady;
  }
  if (welcome->status == WelcomeStatus::kFewerFlows) {
    if (welcome->flows == 0) {
      return Fail(State::kRejected,
                  {"the peer's process has no file descriptors left (there: ulimit -n, "
                   "NCCLTUNE_NET_NOFILE)"});
    }
    offered_ = welcome->flows;
    return Fail(State::kFewerFlowsOffered, {"the peer's process is short of file descriptors"});
  }
  if (welcome->status == WelcomeStatus::kUnknownConnection) {
    return Fail(State::kRejected, {"the peer has closed this connection"});
  }
  return Fail(State::kRejected,
              {"the peer's wire format is release " + std::to_string(welcome->release) + ", ours " +
               std::to_string(kWireRelease) + ": install one version of nccltune on all nodes"});
}

Dialer::State Dialer::Fail(State state, SocketEnd end) {
  socket_.Close();
  end_ = std::move(end);
  return state_ = state;
}

Dialer::State Dialer::FailBy(const char* what, int error) {
  if (IsDescriptorShortage(error)) shortage_ = error;
  const SocketEnd end = EndBy(error);
  return Fail(error == ECONNREFUSED ? State::kRefused : State::kFailed,
              {std::string(what) + ": " + end.why, end.is_outage});
}

}  // namespace nccltune::net
