// SPDX-License-Identifier: Apache-2.0
#include "net/dialer.h"

#include <cerrno>

#include "net/clock.h"

namespace nccltune::net {
namespace {

// The kernel of a host that is there answers long before.
constexpr int64_t kConnectLimitNs = 20 * kNsPerSecond;

}  // namespace

void Dialer::Start(int64_t now_ns) {
  connected_ = false;
  said_ = 0;
  heard_ = 0;
  started_ns_ = now_ns;
  hello_bytes_ = Encode(hello_);
  state_ = State::kWorking;
  Opened opened = StartConnecting(nic_, peer_, traffic_class_);
  socket_ = std::move(opened.socket);
  if (!socket_.open()) FailBy("connect", opened.error);
}

Dialer::State Dialer::Step(int64_t now_ns) {
  if (state_ != State::kWorking) return state_;
  const int64_t limit_ns = connected_ ? welcome_limit_ns_ : kConnectLimitNs;
  if (now_ns - started_ns_ > limit_ns) return Fail(State::kFailed, "no answer");
  if (!connected_) {
    const int error = ConnectResult(socket_.fd());
    if (error == EINPROGRESS) return state_;
    if (error != 0) return FailBy("connect", error);
    connected_ = true;
  }
  while (said_ < hello_bytes_.size()) {
    iovec rest = {hello_bytes_.data() + said_, hello_bytes_.size() - said_};
    const Moved moved = WriteSome(socket_.fd(), {&rest, 1});
    if (moved.later()) return state_;
    if (moved.error != 0) return FailBy("hello", moved.error);
    said_ += moved.bytes;
  }
  while (heard_ < welcome_bytes_.size()) {
    iovec rest = {welcome_bytes_.data() + heard_, welcome_bytes_.size() - heard_};
    const Moved moved = ReadSome(socket_.fd(), {&rest, 1});
    if (moved.later()) return state_;
    if (moved.error != 0) return FailBy("welcome", moved.error);
    if (moved.bytes == 0) return Fail(State::kFailed, "closed without a welcome");
    heard_ += moved.bytes;
  }
  const std::optional<Welcome> welcome = DecodeWelcome(welcome_bytes_);
  if (!welcome) return Fail(State::kNever, "what listens there is not nccltune");
  if (welcome->verdict == Verdict::kTaken && welcome->release == kWireRelease) {
    return state_ = State::kReady;
  }
  if (welcome->verdict == Verdict::kUnknownConnection) {
    return Fail(State::kNever, "the peer has closed this connection");
  }
  return Fail(State::kNever,
              "the peer's wire format is release " + std::to_string(welcome->release) + ", ours " +
                  std::to_string(kWireRelease) + ": install one version of nccltune on all nodes");
}

Dialer::State Dialer::Fail(State state, std::string reason) {
  socket_.Close();
  reason_ = std::move(reason);
  return state_ = state;
}

Dialer::State Dialer::FailBy(const char* what, int error) {
  return Fail(error == ECONNREFUSED ? State::kRefused : State::kFailed,
              std::string(what) + ": " + ErrorWords(error));
}

}  // namespace nccltune::net
