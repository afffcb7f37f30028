// SPDX-License-Identifier: Apache-2.0
#include "bench/ensemble.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "bench/ending.h"
#include "bench/error_words.h"
#include "bench/messages.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// For closing the communicator.
constexpr seconds kCloseLimit{30};
// For the players to end, within kGrace.
constexpr milliseconds kEndLimit{2500};
// With more lines unread no step is begun.
constexpr size_t kMostUnread = size_t{64} << 10;
constexpr seconds kLongestWait{1};

Ensemble::Clock::time_point Never() { return Ensemble::Clock::time_point::max(); }

// Whether an answer says that nothing more can be run.
bool IsFatal(MessageType type, std::string_view payload) {
  if (type == MessageType::kStepDone) {
    StepResult step;
    return !Read(payload, &step) || (step.error && step.error->fatal);
  }
  if (type == MessageType::kTableDone) {
    TableResult table;
    return !Read(payload, &table) || (table.error && table.error->fatal);
  }
  Opened opened;
  return type == MessageType::kOpened && (!Read(payload, &opened) || opened.error);
}

}  // namespace

Ensemble::Ensemble(std::vector<Wire> wires, Surroundings surroundings)
    : surroundings_(std::move(surroundings)),
      wires_(std::move(wires)),
      output_(surroundings_.output),
      answers_(wires_.size()),
      gathered_(wires_.size()),
      gone_(wires_.size()) {}

bool Ensemble::Ask(MessageType question, std::string_view payload, MessageType answer,
                   Clock::time_point until) {
  awaited_ = answer;
  cut_.reset();
  std::fill(answers_.begin(), answers_.end(), std::nullopt);
  SendToAll(question, payload);
  while (!ending_ && !AllAnswered()) {
    const Clock::time_point limit = cut_ ? std::min(until, *cut_) : until;
    if (Clock::now() >= limit) return false;
    Pump(limit);
  }
  // Who goes after its answer takes nothing from it.
  return AllAnswered();
}

bool Ensemble::AllAnswered() const {
  return std::all_of(answers_.begin(), answers_.end(),
                     [](const auto& answer) { return answer.has_value(); });
}

std::string Ensemble::Silent() const {
  std::vector<int> silent;
  for (size_t process = 0; process < answers_.size(); ++process) {
    if (!answers_[process]) silent.push_back(static_cast<int>(process));
  }
  return Processes(silent);
}

host::LineBuffer::Result Ensemble::NextLine(std::string* line) {
  while (!ending_) {
    const host::LineBuffer::Result result = input_.Next(line);
    if (result != host::LineBuffer::Result::kMore) return result;
    Pump(Never(), /*wants_input=*/true);
  }
  return host::LineBuffer::Result::kEnd;
}

void Ensemble::Say(const json::Value& answer) { output_.Write(json::Write(answer)); }

void Ensemble::WaitForReader() {
  while (!ending_ && output_.waiting() > kMostUnread) Pump(Never());
}

void Ensemble::End(int status, Trouble trouble, bool told) {
  if (ending_) return;
  ending_ = Ending{status, std::move(trouble), told};
  surroundings_.ending(status);
}

bool Ensemble::Quit() {
  quitting_ = true;
  return Ask(MessageType::kQuit, {}, MessageType::kClosed, Clock::now() + kCloseLimit);
}

void Ensemble::FlushWell() {
  while (!ending_ && output_.broken().empty() && output_.waiting() > 0) Pump(Never());
}

void Ensemble::Abort(const Ending& ending) {
  SendToAll(MessageType::kAbort, Written(Order{ending.status, ending.trouble.text}));
  const Clock::time_point until = Clock::now() + kEndLimit;
  const auto anything_left = [this] {
    return output_.waiting() > 0 || std::find(gone_.begin(), gone_.end(), false) != gone_.end();
  };
  while (Clock::now() < until && anything_left()) Pump(until);
}

void Ensemble::SendToAll(MessageType type, std::string_view payload) {
  for (Wire& wire : wires_) wire.Send(type, payload);
}

void Ensemble::Pump(Clock::time_point until, bool wants_input) {
  constexpr size_t kFirstWire = 3;
  std::vector<pollfd> watched;
  watched.push_back({ending_ ? -1 : surroundings_.interrupt, POLLIN, 0});
  watched.push_back({wants_input ? surroundings_.input : -1, POLLIN, 0});
  // Without anything to write it tells when the reader goes.
  watched.push_back({output_.broken().empty() ? output_.descriptor() : -1,
                     static_cast<short>(output_.waiting() > 0 ? POLLOUT : 0), 0});
  const Clock::time_point now = Clock::now();
  Clock::time_point wake = std::min(until, now + kLongestWait);
  for (const Wire& wire : wires_) {
    const bool open = wire.broken().empty();
    watched.push_back({open ? wire.descriptor() : -1,
                       static_cast<short>(wire.wants_to_send() ? POLLIN | POLLOUT : POLLIN), 0});
    if (open) wake = std::min(wake, wire.NextDeadline());
  }
  const auto left = std::chrono::ceil<milliseconds>(wake - now).count();
  poll(watched.data(), watched.size(), static_cast<int>(std::max<int64_t>(left, 0)));

  if (watched[0].revents != 0) {
    End(surroundings_.interrupted_status(), {"signal", surroundings_.why_interrupted(), "", -1});
  }
  if (watched[1].revents != 0) ReadInput();
  output_.Flush();
  if ((watched[2].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
    output_.Break("its reader has gone");
  }
  if (!output_.broken().empty() && !quitting_) {
    End(kFailed, {"output", "standard output cannot be written: " + output_.broken(), "", -1},
        /*told=*/true);
  }
  std::vector<Message> messages;
  for (size_t process = 0; process < wires_.size(); ++process) {
    Wire& wire = wires_[process];
    if (!wire.broken().empty()) continue;
    if (watched[kFirstWire + process].revents != 0) {
      wire.Flush();
      messages.clear();
      wire.Receive(&messages);
      for (Message& message : messages) Handle(process, std::move(message));
    }
    wire.KeepAlive(Clock::now());
    if (!wire.broken().empty()) Lost(process, wire.broken());
  }
}

void Ensemble::ReadInput() {
  char bytes[4096];
  const ssize_t got = read(surroundings_.input, bytes, sizeof bytes);
  if (got > 0) {
    input_.Add({bytes, static_cast<size_t>(got)});
  } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
    input_.End();
  }
}

void Ensemble::Handle(size_t process, Message message) {
  if (message.type == MessageType::kGather) {
    Gather(process, std::move(message.payload));
  } else if (message.type == MessageType::kLeaving) {
    Lost(process, message.payload);
  } else if (message.type == awaited_) {
    if (!cut_ && IsFatal(message.type, message.payload)) {
      cut_ = Clock::now() + surroundings_.after_fatal;
    }
    answers_[process] = std::move(message.payload);
  }
}

void Ensemble::Gather(size_t process, std::string part) {
  gathered_[process] = std::move(part);
  std::vector<std::string> parts;
  for (const std::optional<std::string>& one : gathered_) {
    if (!one) return;
    parts.push_back(*one);
  }
  std::fill(gathered_.begin(), gathered_.end(), std::nullopt);
  SendToAll(MessageType::kGathered, Written(parts));
}

void Ensemble::Lost(size_t process, const std::string& why) {
  gone_[process] = true;
  if (quitting_ && answers_[process]) return;  // it has closed its backend and may go
  End(kFailed, {"died", "process " + std::to_string(process) + " has gone: " + why,
                "its own standard error may say why",
                process < first_ranks_.size() ? first_ranks_[process] : -1});
}

}  // namespace nccltune::bench
