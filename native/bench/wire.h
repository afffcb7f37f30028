// SPDX-License-Identifier: Apache-2.0
// A connection between the conductor and one player: messages over a stream socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "bench/step.h"
#include "common/descriptor.h"

namespace nccltune::bench {

enum class MessageType : uint8_t {
  kHeartbeat = 1,
  kOpen,       // to all players: open the backend
  kOpened,     // from a player: the backend's description, or the error
  kStep,       // to all players: run this step
  kStepDone,   // from a player: a StepResult
  kTable,      // to all players: return NCCL's predictions for this step
  kTableDone,  // from a player: a TableResult
  kGather,     // from a player: its part of an exchange
  kGathered,   // to all players: the parts of all processes
  kQuit,       // to all players: close the backend and exit normally
  kClosed,     // from a player: the backend is closed
  kAbort,      // to all players: exit now, with this status
  kLeaving,    // from a player: it must end; the payload is the reason
};
inline constexpr MessageType kLastMessageType = MessageType::kLeaving;

struct Message {
  MessageType type = MessageType::kHeartbeat;
  std::string payload;
};

// One connection. A message consists of the payload length (four bytes, little-endian), the type
// (one byte) and the payload.
class Wire {
 public:
  static constexpr size_t kMaxPayload = size_t{256} << 20;
  static constexpr std::chrono::seconds kHeartbeatInterval{1};
  static constexpr std::chrono::seconds kPeerTimeout{5};
  using Clock = std::chrono::steady_clock;

  // Takes a connected stream socket and makes it non-blocking.
  explicit Wire(Descriptor socket);

  int descriptor() const { return socket_.fd(); }

  // Queues a message and sends as much as the socket accepts; Flush sends the remaining bytes.
  // After the peer has closed the connection, Send does nothing, and Receive reports the close.
  void Send(MessageType type, std::string_view payload);
  void Flush();
  bool wants_to_send() const { return sent_ < outgoing_.size(); }

  // Appends the complete messages received so far. Heartbeats are not appended; they only show that
  // the peer is alive.
  void Receive(std::vector<Message>* messages);

  // Returns the reason why the connection is broken; empty while it works.
  const std::string& broken() const { return broken_; }
  void Break(std::string why);

  // Sends a heartbeat if nothing was sent for kHeartbeatInterval. Breaks the connection if nothing
  // was received for kPeerTimeout.
  void KeepAlive(Clock::time_point now);
  // Returns the time at which KeepAlive must be called next.
  Clock::time_point NextDeadline() const;

 private:
  void TakeMessages(std::vector<Message>* messages);

  Descriptor socket_;
  std::string outgoing_;
  size_t sent_ = 0;
  std::string incoming_;
  bool send_failed_ = false;
  std::string broken_;
  Clock::time_point last_sent_;
  Clock::time_point last_received_;
};

// The payloads of messages between conductor and players. All processes have the same version and
// have sent the right token. So a payload that cannot be parsed is a bug or a damaged connection.

// Payload of kOpened: the backend's description, or the reason why the backend could not be opened.
struct OpenResult {
  BackendInfo info;
  std::optional<OpenError> error;
};

// Payload of kAbort: exit status and reason.
struct AbortOrder {
  int status = 0;
  std::string text;
};

// Serializes a payload. kStep and kTable carry a Step, kStepDone a StepResult, kTableDone a
// TableResult. kLeaving and kGather carry plain bytes. kGathered carries the bytes of all
// processes, in process order, as a vector of strings. The types kHeartbeat, kOpen, kQuit and
// kClosed have no payload.
template <typename Payload>
std::string Serialize(const Payload& payload);

// Returns false if the bytes are not a valid payload of that type.
template <typename Payload>
bool Read(std::string_view bytes, Payload* payload);

}  // namespace nccltune::bench
