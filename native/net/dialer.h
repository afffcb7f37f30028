// SPDX-License-Identifier: Apache-2.0
// Connects one flow (one TCP connection of an NCCL connection). The steps are the TCP connect,
// sending a hello, and receiving the peer's welcome. Never blocks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "net/device_table.h"
#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {

class Dialer {
 public:
  enum class State {
    kWorking,
    kReady,              // connected and welcomed; call Take()
    kFailed,             // a retry may succeed
    kRefused,            // no socket listens at the peer's address
    kRejected,           // the peer rejected the flow; do not retry
    kFewerFlowsOffered,  // the peer accepts only offered() flows
  };

  Dialer(const Nic& nic, const SocketEndpoint& peer, const Hello& hello, int traffic_class,
         int path_timeout_ms);

  // Sets the time limits of later attempts, for a connection that the peer's application has
  // accepted. Until then there is no limit for the welcome.
  void ReconnectFromNowOn();

  // Starts a new attempt.
  void Start(int64_t now_ns);
  State Step(int64_t now_ns);
  State state() const { return state_; }

  int fd() const { return socket_.fd(); }
  Descriptor Take() { return std::move(socket_); }
  const SocketEndpoint& peer() const { return peer_; }
  // Returns why the last attempt failed.
  const SocketEnd& end() const { return end_; }
  const std::string& reason() const { return end_.why; }
  // Returns the error of the last attempt if it failed for lack of a file descriptor, else 0.
  int shortage() const { return shortage_; }
  // In state kFewerFlowsOffered: returns the number of flows for a new attempt, at least
  // kFewestFlows.
  uint16_t offered() const { return offered_; }

 private:
  State Fail(State state, SocketEnd end);
  State FailBy(const char* what, int error);

  Nic nic_;
  SocketEndpoint peer_;
  Hello hello_;
  int traffic_class_;
  int path_timeout_ms_;
  PathWatch path_;
  int shortage_ = 0;
  uint16_t offered_ = 0;
  int64_t connect_limit_ns_;
  int64_t welcome_limit_ns_ = INT64_MAX;

  State state_ = State::kFailed;
  Descriptor socket_;
  int64_t started_ns_ = 0;
  bool connected_ = false;
  size_t hello_sent_ = 0;
  size_t welcome_received_ = 0;
  std::array<std::byte, kHelloBytes> hello_bytes_ = {};
  std::array<std::byte, kWelcomeBytes> welcome_bytes_ = {};
  SocketEnd end_ = {"not tried"};
};

}  // namespace nccltune::net
