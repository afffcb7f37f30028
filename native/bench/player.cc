// SPDX-License-Identifier: Apache-2.0
#include "bench/player.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "bench/random.h"

namespace nccltune::bench {
namespace {

// Mixed into the seed for the order of the steps. So the order is independent of other random
// numbers of the same round.
constexpr std::string_view kOrderSeed = "order";

}  // namespace

std::vector<Step> StepsOfRound(const BenchRequest& request, int round) {
  Random random(MixSeed(MixSeed(request.step.seed, kOrderSeed),
                        static_cast<uint64_t>(static_cast<int64_t>(round))));
  std::vector<Step> steps;
  for (const size_t bytes : request.bytes) {
    for (const Choice& choice : request.choices) {
      const bool is_default = choice.kind == Choice::Kind::kDefault;
      for (int repeat = 0; repeat < (is_default ? request.default_repeats : 1); ++repeat) {
        Step& step = steps.emplace_back(request.step);
        step.bytes = bytes;
        step.choice = choice;
      }
    }
  }
  Shuffle(&random, &steps);
  std::map<size_t, int> defaults;  // number of default steps so far, by size
  for (Step& step : steps) {
    step.round = round;
    if (step.choice.kind == Choice::Kind::kDefault) step.repeat = defaults[step.bytes]++;
  }
  return steps;
}

Player::Player(const World& world, std::unique_ptr<Backend> backend, Wire wire, EarlyEnd options)
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
    const std::string reason = "it was " + options_.why_interrupted();
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

BackendThread::BackendThread(const World& world, std::unique_ptr<Backend> backend)
    : world_(world),
      backend_(std::move(backend)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(&BackendThread::Loop, this) {}

BackendThread::~BackendThread() {
  if (!finished()) Abort();
  thread_.join();
  if (aborter_.joinable()) aborter_.join();
}

bool BackendThread::Deliver(Message message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (message.type) {
    case MessageType::kOpen:
    case MessageType::kStep:
    case MessageType::kTable:
    case MessageType::kQuit:
      tasks_.push_back(std::move(message));
      break;
    case MessageType::kGathered: {
      std::vector<std::string> parts;
      if (!Read(message.payload, &parts) || parts.size() != static_cast<size_t>(world_.processes)) {
        return false;
      }
      gathered_.push_back(std::move(parts));
      break;
    }
    default:
      return false;
  }
  changed_.notify_all();
  return true;
}

std::vector<Message> BackendThread::TakeAnswers() {
  uint64_t count = 0;
  if (read(event_.fd(), &count, sizeof count) < 0) return {};
  // A message that is added between read and lock is taken now. The event of that message later
  // wakes the caller once without a message.
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(answers_, {});
}

void BackendThread::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(aborted_, true)) return;
  changed_.notify_all();
  // Use another thread, because the abort may block like the call that it must end.
  if (!finished_) aborter_ = std::thread([this] { backend_->Abort(); });
}

bool BackendThread::finished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_;
}

bool BackendThread::AllGather(std::string_view mine, std::vector<std::string>* all) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (aborted_ || mine.size() > kMaxBytes) return false;
  answers_.push_back({MessageType::kGather, std::string(mine)});
  SignalEvent();
  changed_.wait(lock, [this] { return aborted_ || !gathered_.empty(); });
  if (aborted_) return false;
  *all = std::move(gathered_.front());
  gathered_.pop_front();
  return true;
}

void BackendThread::Loop() {
  for (;;) {
    Message message;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return aborted_ || !tasks_.empty(); });
      if (aborted_) break;
      message = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (!RunTask(message)) break;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  SignalEvent();
}

bool BackendThread::RunTask(const Message& message) {
  Step step;
  switch (message.type) {
    case MessageType::kOpen: {
      OpenResult opened;
      opened.error = backend_->Open(world_, this, &opened.info);
      Answer(MessageType::kOpened, Serialize(opened));
      return true;
    }
    case MessageType::kStep:
      if (!Read(message.payload, &step)) return false;
      Answer(MessageType::kStepDone, Serialize(backend_->Run(step)));
      return true;
    case MessageType::kTable:
      if (!Read(message.payload, &step)) return false;
      Answer(MessageType::kTableDone, Serialize(backend_->Table(step)));
      return true;
    default:
      backend_->Close();
      Answer(MessageType::kClosed, "");
      return false;
  }
}

void BackendThread::Answer(MessageType type, std::string payload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answers_.push_back({type, std::move(payload)});
  SignalEvent();
}

void BackendThread::SignalEvent() {
  const uint64_t one = 1;
  // The write fails only if the counter is at its maximum, and then the event is readable anyway.
  [[maybe_unused]] const ssize_t written = write(event_.fd(), &one, sizeof one);
}

}  // namespace nccltune::bench
