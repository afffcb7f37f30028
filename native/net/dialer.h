// SPDX-License-Identifier: Apache-2.0
//
// One flow on its way up: connect, hello, welcome. Never waits.
#ifndef NCCLTUNE_NET_DIALER_H_
#define NCCLTUNE_NET_DIALER_H_

#include <array>
#include <cstdint>
#include <string>

#include "net/device.h"
#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {

class Dialer {
 public:
  enum class State {
    kWorking,
    kReady,    // Take
    kFailed,   // another try may do better
    kRefused,  // nobody listens there
    kNever,    // the peer said no
  };

  Dialer(const Nic& nic, const Endpoint& peer, const Hello& hello, int traffic_class)
      : nic_(nic), peer_(peer), hello_(hello), traffic_class_(traffic_class) {}

  // How long the peer may take to answer a connection that stands. At first there is no limit: its
  // application decides when it accepts.
  void set_welcome_limit(int64_t ns) { welcome_limit_ns_ = ns; }

  // Begins (anew).
  void Start(int64_t now_ns);
  State Step(int64_t now_ns);
  State state() const { return state_; }

  int fd() const { return socket_.fd(); }
  Socket Take() { return std::move(socket_); }
  const Endpoint& peer() const { return peer_; }
  // Why it failed.
  const std::string& reason() const { return reason_; }

 private:
  State Fail(State state, std::string reason);
  State FailBy(const char* what, int error);

  Nic nic_;
  Endpoint peer_;
  Hello hello_;
  int traffic_class_;
  int64_t welcome_limit_ns_ = INT64_MAX;

  State state_ = State::kFailed;
  Socket socket_;
  int64_t started_ns_ = 0;
  bool connected_ = false;
  size_t said_ = 0;
  size_t heard_ = 0;
  std::array<std::byte, kHelloBytes> hello_bytes_ = {};
  std::array<std::byte, kWelcomeBytes> welcome_bytes_ = {};
  std::string reason_ = "not tried";
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DIALER_H_
