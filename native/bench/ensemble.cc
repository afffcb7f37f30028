// SPDX-License-Identifier: Apache-2.0
#include "bench/ensemble.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/step.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kCloseLimit{30};
// Time limit for the players to exit. It must be below kGrace, after which this process exits by
// force.
constexpr milliseconds kEndLimit{2500};
// No new step starts while more bytes of output than this are unwritten.
constexpr size_t kMaxUnread = size_t{64} << 10;
constexpr seconds kLongestWait{1};

Ensemble::Clock::time_point Never() { return Ensemble::Clock::time_point::max(); }

// Returns whether the answer cannot be read, or reports an error after which no step can run.
bool IsFatal(MessageType type, std::string_view payload) {
  if (type == MessageType::kStepDone) {
    StepResult step;
    return !Read(payload, &step) || (step.error && step.error->fatal);
  }
  if (type == MessageType::kTableDone) {
    TableResult table;
    return !Read(payload, &table) || (table.error && table.error->fatal);
  }
  OpenResult opened;
  return type == MessageType::kOpened && (!Read(payload, &opened) || opened.error);
}

}  // namespace

Ensemble::Ensemble(std::vector<Wire> wires, Options options)
    : options_(std::move(options)),
      wires_(std::move(wires)),
      output_(options_.output),
      answers_(wires_.size()),
      gathered_(wires_.size()),
      lost_(wires_.size()) {}

bool Ensemble::Ask(MessageType question, std::string_view payload, MessageType answer,
                   Clock::time_point until) {
  awaited_ = answer;
  cut_short_at_.reset();
  std::fill(answers_.begin(), answers_.end(), std::nullopt);
  SendToAll(question, payload);
  while (!ending_ && !AllAnswered()) {
    const Clock::time_point limit = cut_short_at_ ? std::min(until, *cut_short_at_) : until;
    if (Clock::now() >= limit) return false;
    Pump(limit);
  }
  // A player that disconnects after its answer does not invalidate the answer.
  return AllAnswered();
}

bool Ensemble::AllAnswered() const {
  return std::all_of(answers_.begin(), answers_.end(),
                     [](const auto& answer) { return answer.has_value(); });
}

std::string Ensemble::MissingAnswers() const {
  std::vector<int> missing;
  for (size_t process = 0; process < answers_.size(); ++process) {
    if (!answers_[process]) missing.push_back(static_cast<int>(process));
  }
  return Processes(missing);
}

host::LineBuffer::Result Ensemble::NextLine(std::string* line) {
  while (!ending_) {
    const host::LineBuffer::Result result = input_.Next(line);
    if (result != host::LineBuffer::Result::kMore) return result;
    Pump(Never(), /*wants_input=*/true);
  }
  return host::LineBuffer::Result::kEnd;
}

void Ensemble::WriteAnswer(const json::Value& answer) { output_.Write(json::Write(answer)); }

void Ensemble::WaitForReader() {
  while (!ending_ && output_.waiting() > kMaxUnread) Pump(Never());
}

void Ensemble::End(int status, ErrorReport error_report, bool reported) {
  if (ending_) return;
  ending_ = RunEnd{status, std::move(error_report), reported};
  options_.ending(status);
}

bool Ensemble::Quit() {
  quitting_ = true;
  return Ask(MessageType::kQuit, {}, MessageType::kClosed, Clock::now() + kCloseLimit);
}

void Ensemble::FlushOutput() {
  while (!ending_ && output_.broken().empty() && output_.waiting() > 0) Pump(Never());
}

void Ensemble::Abort(const RunEnd& ending) {
  SendToAll(MessageType::kAbort, Serialize(AbortOrder{ending.status, ending.error_report.text}));
  const Clock::time_point until = Clock::now() + kEndLimit;
  const auto anything_left = [this] {
    return output_.waiting() > 0 || std::find(lost_.begin(), lost_.end(), false) != lost_.end();
  };
  while (Clock::now() < until && anything_left()) Pump(until);
}

void Ensemble::SendToAll(MessageType type, std::string_view payload) {
  for (Wire& wire : wires_) wire.Send(type, payload);
}

void Ensemble::Pump(Clock::time_point until, bool wants_input) {
  constexpr size_t kFirstWire = 3;
  std::vector<pollfd> watched;
  watched.push_back({ending_ ? -1 : options_.interrupt, POLLIN, 0});
  watched.push_back({wants_input ? options_.input : -1, POLLIN, 0});
  // If nothing is to be written, poll still reports that the reader has closed the pipe.
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
    End(options_.interrupted_status(), {"signal", options_.why_interrupted(), "", -1});
  }
  if (watched[1].revents != 0) ReadInput();
  output_.Flush();
  if ((watched[2].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
    output_.Break("its reader has closed it");
  }
  if (!output_.broken().empty() && !quitting_) {
    End(kFailed, {"output", "standard output cannot be written: " + output_.broken(), "", -1},
        /*reported=*/true);
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
    if (!wire.broken().empty()) OnLost(process, wire.broken());
  }
}

void Ensemble::ReadInput() {
  char bytes[4096];
  const ssize_t got = read(options_.input, bytes, sizeof bytes);
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
    OnLost(process, message.payload);
  } else if (message.type == awaited_) {
    if (!cut_short_at_ && IsFatal(message.type, message.payload)) {
      cut_short_at_ = Clock::now() + options_.after_fatal;
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
  SendToAll(MessageType::kGathered, Serialize(parts));
}

void Ensemble::OnLost(size_t process, const std::string& why) {
  lost_[process] = true;
  // This player has answered kQuit, so its disconnection is no error.
  if (quitting_ && answers_[process]) return;
  End(kFailed, {"died", "process " + std::to_string(process) + " was lost: " + why,
                "its standard error may show why",
                process < first_ranks_.size() ? first_ranks_[process] : -1});
}

namespace {

// A pipe that poll reports as writable accepts this many bytes without blocking (PIPE_BUF).
constexpr size_t kAtOnce = 4096;

}  // namespace

void LineOutput::Write(std::string_view line) {
  if (!broken_.empty()) return;
  pending_ += line;
  pending_ += '\n';
  Flush();
}

void LineOutput::Flush() {
  while (broken_.empty() && waiting() > 0) {
    pollfd ready = {descriptor_, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const ssize_t got =
        write(descriptor_, pending_.data() + written_, std::min(waiting(), kAtOnce));
    if (got >= 0) {
      written_ += static_cast<size_t>(got);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      Break(std::strerror(errno));
    }
  }
  if (waiting() > 0 && written_ < pending_.size() / 2) return;
  pending_.erase(0, written_);
  written_ = 0;
}

void LineOutput::Break(std::string why) {
  if (broken_.empty()) broken_ = std::move(why);
  pending_.clear();
  written_ = 0;
}

}  // namespace nccltune::bench
