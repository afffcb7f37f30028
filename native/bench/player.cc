// SPDX-License-Identifier: Apache-2.0
#include "bench/player.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "bench/ending.h"
#include "bench/messages.h"

namespace nccltune::bench {

Player::Player(const World& world, std::unique_ptr<Backend> backend, Wire wire, Options options)
    : wire_(std::move(wire)), options_(std::move(options)), worker_(world, std::move(backend)) {}

int Player::Run(std::string* why) {
  while (!worker_.finished()) Pump();
  for (const Message& answer : worker_.TakeAnswers()) wire_.Send(answer.type, answer.payload);
  // Wait for the conductor, which closes the connection after the last answer.
  while (!ending_ && wire_.broken().empty()) Pump();
  *why = why_;
  return status_;
}

void Player::Pump() {
  std::array<pollfd, 3> watched = {{
      {ending_ ? -1 : options_.interrupt, POLLIN, 0},
      {worker_.descriptor(), POLLIN, 0},
      {wire_.broken().empty() ? wire_.descriptor() : -1,
       static_cast<short>(wire_.wants_to_send() ? POLLIN | POLLOUT : POLLIN), 0},
  }};
  constexpr int kLongest = 1000;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(wire_.NextDeadline() - Wire::Clock::now());
  const int wait = wire_.broken().empty()
                       ? static_cast<int>(std::clamp<int64_t>(left.count(), 0, kLongest))
                       : kLongest;
  poll(watched.data(), watched.size(), wait);
  for (const Message& answer : worker_.TakeAnswers()) wire_.Send(answer.type, answer.payload);
  if (wire_.broken().empty()) {
    if (watched[2].revents != 0) {
      wire_.Flush();
      std::vector<Message> messages;
      wire_.Receive(&messages);
      for (Message& message : messages) Handle(std::move(message));
    }
    wire_.KeepAlive(Wire::Clock::now());
  }
  if (watched[0].revents != 0) {
    const std::string reason = options_.why_interrupted();
    wire_.Send(MessageType::kLeaving, reason);
    End(options_.interrupted_status(), reason);
  }
  // After kQuit a closed connection is no error, because the conductor may exit before this backend
  // is closed.
  if (!wire_.broken().empty() && !quitting_ && !ending_) {
    lost_conductor_ = true;
    End(kFailed, "the connection to process 0 is lost: " + wire_.broken());
  }
}

void Player::Handle(Message message) {
  if (message.type == MessageType::kAbort) {
    AbortOrder order;
    if (Read(message.payload, &order)) {
      End(order.status, order.text);
    } else {
      wire_.Break("an abort message could not be read");
    }
    return;
  }
  if (message.type == MessageType::kQuit) quitting_ = true;
  if (!worker_.Deliver(std::move(message))) wire_.Break("a message could not be read");
}

void Player::End(int status, std::string why) {
  if (std::exchange(ending_, true)) return;
  status_ = status;
  why_ = std::move(why);
  options_.ending(status);
  worker_.Abort();
}

}  // namespace nccltune::bench
