// SPDX-License-Identifier: Apache-2.0
//
// Messages between the conductor and one player over a stream socket.
#ifndef NCCLTUNE_BENCH_WIRE_H_
#define NCCLTUNE_BENCH_WIRE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/descriptor.h"

namespace nccltune::bench {

enum class MessageType : uint8_t {
  kHeartbeat = 1,
  kOpen,       // to a player: open the backend
  kOpened,     // from it: what the backend is, or why it cannot
  kStep,       // to all players
  kStepDone,   //
  kTable,      // to all players
  kTableDone,  //
  kGather,     // from a player: its part of an exchange
  kGathered,   // to all players: the parts of all
  kQuit,       // to all players: close the backend and end well
  kClosed,     // from a player: the backend is closed
  kAbort,      // to all players: end now, with this status
  kLeaving,    // from a player: it has to end, and why
};
inline constexpr MessageType kLastMessageType = MessageType::kLeaving;

struct Message {
  MessageType type = MessageType::kHeartbeat;
  std::string payload;
};

// Each message is four bytes of payload length, lowest first, one byte of type, and the payload.
class Wire {
 public:
  static constexpr size_t kMostPayload = size_t{256} << 20;
  static constexpr std::chrono::seconds kHeartbeatEvery{1};
  static constexpr std::chrono::seconds kSilenceIsDeath{5};
  using Clock = std::chrono::steady_clock;

  // A connected stream socket; becomes non-blocking.
  explicit Wire(Descriptor socket);

  int descriptor() const { return socket_.get(); }

  // Sends at once what the socket takes, the rest with Flush. Nothing once the other side has gone,
  // which Receive tells.
  void Send(MessageType type, std::string_view payload);
  void Flush();
  bool wants_to_send() const { return sent_ < outgoing_.size(); }

  // Appends the whole messages that have come. Heartbeats are only noted.
  void Receive(std::vector<Message>* messages);

  // Why nothing more will come; empty while it may.
  const std::string& broken() const { return broken_; }
  void Break(std::string why);

  // Sends a heartbeat when one is due, and breaks when the other side has been silent for too long.
  void KeepAlive(Clock::time_point now);
  // When KeepAlive will have something to do.
  Clock::time_point NextDeadline() const;

 private:
  void TakeMessages(std::vector<Message>* messages);

  Descriptor socket_;
  std::string outgoing_;
  size_t sent_ = 0;
  std::string incoming_;
  bool deaf_ = false;  // the other side takes nothing more
  std::string broken_;
  Clock::time_point last_sent_;
  Clock::time_point last_heard_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_WIRE_H_
