// SPDX-License-Identifier: Apache-2.0
#include "bench/player.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <cmath>
#include <cstddef>
#include <tuple>
#include "bench/ending.h"
#include "bench/messages.h"
#include "bench/random.h"

namespace nccltune::bench {
namespace {

// Mixed into the seed for the order of the steps. So the order is independent of the timings that a
// replay draws for the same round.
constexpr std::string_view kOrderSeed = "order";

void AddSize(const BenchRequest& request, size_t bytes, std::vector<Step>* steps) {
  for (const Choice& choice : request.choices) {
    const bool is_default = choice.kind == Choice::Kind::kDefault;
    for (int repeat = 0; repeat < (is_default ? request.default_repeats : 1); ++repeat) {
      Step step = request.step;
      step.bytes = bytes;
      step.choice = choice;
      steps->push_back(step);
    }
  }
}

auto Ordered(const Choice& choice) {
  return std::tuple(choice.kind, choice.combination.algorithm, choice.combination.protocol,
                    choice.channels, choice.chunk_bytes);
}

}  // namespace

std::vector<Step> StepsOfRound(const BenchRequest& request, int round) {
  Random random(MixSeed(MixSeed(request.step.seed, kOrderSeed),
                        static_cast<uint64_t>(static_cast<int64_t>(round))));
  std::vector<Step> steps;
  for (const size_t bytes : request.bytes) {
    if (request.by_size) {
      std::vector<Step> of_size;
      AddSize(request, bytes, &of_size);
      Shuffle(&random, &of_size);
      steps.insert(steps.end(), of_size.begin(), of_size.end());
    } else {
      AddSize(request, bytes, &steps);
    }
  }
  if (!request.by_size) Shuffle(&random, &steps);
  std::map<size_t, int> defaults;  // number of default steps so far, by size
  for (Step& step : steps) {
    step.round = round;
    if (step.choice.kind == Choice::Kind::kDefault) step.repeat = defaults[step.bytes]++;
  }
  return steps;
}

bool Iterations::Less::operator()(const Key& a, const Key& b) const {
  return std::pair(a.first, Ordered(a.second)) < std::pair(b.first, Ordered(b.second));
}

std::optional<int> Iterations::For(const Step& step) const {
  if (step.iterations > 0) return step.iterations;
  const auto found = picked_.find({step.bytes, step.choice});
  if (found == picked_.end()) return std::nullopt;
  return found->second;
}

Step Iterations::Trial(Step step) {
  step.warmup = std::max(step.warmup, 1);
  step.iterations = kMin;
  step.check = false;
  return step;
}

void Iterations::SetTrialTime(const Step& step, double time_us) {
  const double wanted = time_us > 0 ? std::ceil(target_us_ / time_us) : kMax;
  picked_[{step.bytes, step.choice}] =
      static_cast<int>(std::clamp(wanted, double{kMin}, double{kMax}));
}

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
