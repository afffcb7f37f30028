// SPDX-License-Identifier: Apache-2.0
#include "bench/conductor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "bench/ending.h"
#include "bench/rendezvous.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A backend ends a stuck collective by itself; this is for one that does not even do that.
constexpr seconds kBeyondTimeout{10};
// After a fatal answer the others have so long for theirs.
constexpr seconds kAfterFatal{2};
// For closing the communicator.
constexpr seconds kCloseLimit{30};
// For the players to end, within kGrace.
constexpr milliseconds kEndLimit{2500};
// With more lines unread no step is begun.
constexpr size_t kMostUnread = size_t{64} << 10;
constexpr seconds kLongestWait{1};

Conductor::Clock::time_point Never() { return Conductor::Clock::time_point::max(); }

// Whether an answer says that nothing more can be run.
bool IsFatal(MessageType type, std::string_view payload) {
  StepResult step;
  if (type == MessageType::kStepDone)
    return !Read(payload, &step) || (step.error && step.error->fatal);
  TableResult table;
  if (type == MessageType::kTableDone) {
    return !Read(payload, &table) || (table.error && table.error->fatal);
  }
  Opened opened;
  if (type == MessageType::kOpened) return !Read(payload, &opened) || opened.error;
  return false;
}

int StatusOf(OpenError::Kind kind) {
  switch (kind) {
    case OpenError::Kind::kCannotRun:
      return kCannotRun;
    case OpenError::Kind::kBadInput:
      return kBadArguments;
    case OpenError::Kind::kFailed:
      return kFailed;
  }
  return kFailed;
}

Trouble TroubleOf(const StepError& error) {
  return {std::string(KindName(error.kind)), error.text, "", error.rank};
}

std::string InWords(const Step& step) {
  return std::string(AllCollectiveNames()[static_cast<size_t>(step.collective)]) + " of " +
         std::to_string(step.bytes) + " bytes with " + json::Write(ToJson(step.choice));
}

}  // namespace

Conductor::Conductor(std::vector<Wire> wires, Surroundings surroundings)
    : surroundings_(std::move(surroundings)),
      wires_(std::move(wires)),
      output_(surroundings_.output),
      answers_(wires_.size()),
      gathered_(wires_.size()),
      gone_(wires_.size()) {}

int Conductor::Run() {
  if (Start()) Converse();
  if (!ending_) {
    const int status = FinishWell();
    if (!ending_) return status;
  }
  return FinishBadly();
}

bool Conductor::Start() {
  SendToAll(MessageType::kOpen, {});
  const bool all = WaitForAll(MessageType::kOpened, Clock::now() + surroundings_.start_limit);
  if (ending_) return false;
  std::vector<int> silent;
  for (size_t process = 0; process < answers_.size(); ++process) {
    Opened opened;
    if (!answers_[process]) {
      silent.push_back(static_cast<int>(process));
      continue;
    }
    if (!Read(*answers_[process], &opened)) {
      Lost(process, "its answer could not be read");
      return false;
    }
    if (opened.error) {
      const OpenError& error = *opened.error;
      End(StatusOf(error.kind), {"start", error.text, error.hint, error.rank});
      return false;
    }
    infos_.push_back(std::move(opened.info));
  }
  if (!all) {
    End(kFailed, {"start",
                  Processes(silent) + " did not make the communicator within " +
                      std::to_string(
                          std::chrono::duration_cast<seconds>(surroundings_.start_limit).count()) +
                      " s",
                  "NCCL_DEBUG=INFO shows what it waits for; --start-timeout gives it longer", -1});
    return false;
  }
  for (size_t process = 1; process < infos_.size(); ++process) {
    if (infos_[process].nccl_version == infos_[0].nccl_version) continue;
    End(kCannotRun, {"start",
                     "process " + std::to_string(process) + " has NCCL " +
                         infos_[process].nccl_version + ", process 0 has " + infos_[0].nccl_version,
                     "give all of them the same library with --nccl", -1});
    return false;
  }
  ranks_ = infos_[0].ranks;
  return true;
}

void Conductor::Converse() {
  Request request;
  while (NextRequest(&request)) {
    id_ = request.id;
    switch (request.kind) {
      case Request::Kind::kHello:
        greeted_ = true;
        Say(HelloAnswer(id_, infos_, surroundings_.version));
        break;
      case Request::Kind::kMeasure:
        Measure(request);
        break;
      case Request::Kind::kTable:
        Table(request);
        break;
      case Request::Kind::kQuit:
        return;
    }
    if (ending_) return;
    id_ = {};
  }
}

// The next valid request; false if there is none or the run ends.
bool Conductor::NextRequest(Request* request) {
  for (;;) {
    std::string line;
    std::string error = "the line is longer than a mebibyte";
    switch (input_.Next(&line)) {
      case host::LineBuffer::Result::kEnd:
        return false;
      case host::LineBuffer::Result::kMore:
        Pump(Never(), /*wants_input=*/true);
        if (ending_) return false;
        continue;
      case host::LineBuffer::Result::kTooLong:
        *request = Request();
        break;
      case host::LineBuffer::Result::kLine:
        if (!ParseRequest(line, ranks_, request, &error)) break;
        if (greeted_ || request->kind == Request::Kind::kHello ||
            request->kind == Request::Kind::kQuit) {
          return true;
        }
        error = "the first request must be hello, with the schema_version that is spoken";
        break;
    }
    Say(ErrorAnswer(request->id, {"request", error, "", -1}));
  }
}

void Conductor::Measure(const Request& request) {
  Iterations iterations(request.target_ms);
  int64_t points = 0;
  for (int i = 0; i < request.rounds; ++i) {
    for (Step& step : StepsOfRound(request, request.first_round + i)) {
      if (!MeasureStep(request, &iterations, std::move(step))) return;
      ++points;
    }
  }
  Say(DoneAnswer(request.id, points));
}

// False when the run ends.
bool Conductor::MeasureStep(const Request& request, Iterations* iterations, Step step) {
  Point point;
  point.step = step;
  point.error = Unsupported(step);
  if (!point.error && !iterations->For(step)) {
    Step trial = Iterations::Trial(step);
    const bool ran = RunStep(&trial, &point);
    if (ran && !point.error) iterations->Learn(step, point.time_us);
  }
  step.iterations = iterations->For(step).value_or(0);
  if (!point.error && !ending_) RunStep(&step, &point);
  point.step = step;
  if (ending_) {
    // What was in flight is told as lost, unless this process was asked to end.
    if (ending_->trouble.kind == "signal" || ending_->told) return false;
    point.error = StepError{ErrorKind::kDied, ending_->trouble.text, ending_->trouble.rank, true};
  }
  Say(PointAnswer(request.id, point, infos_[0].backend));
  if (ending_) {
    ending_->told = true;
  } else if (point.error && point.error->fatal) {
    End(kFailed, TroubleOf(*point.error), /*told=*/true);
  }
  return !ending_;
}

std::optional<StepError> Conductor::Unsupported(const Step& step) const {
  const BackendInfo& info = infos_[0];
  const auto has = [](const auto& all, auto one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  std::string what;
  if (!has(info.collectives, step.collective)) {
    what = AllCollectiveNames()[static_cast<size_t>(step.collective)];
  } else if (!has(info.dtypes, step.dtype)) {
    what = DtypeNames()[static_cast<size_t>(step.dtype)];
  } else if (Reduces(step.collective) && !has(info.redops, step.redop)) {
    what = RedopNames()[static_cast<size_t>(step.redop)];
  } else if (step.registered && !info.registered) {
    what = "registered buffers";
  } else if (step.graph && !info.graph) {
    what = "CUDA graphs";
  } else if (step.choice.chunk_bytes > 0 && !info.chunk) {
    what = "a forced chunk size";
  } else {
    return std::nullopt;
  }
  return StepError{ErrorKind::kUnsupported, what + " is not to be had here"};
}

void Conductor::Table(const Request& request) {
  std::vector<SizedRow> rows;
  for (const size_t bytes : request.bytes) {
    SizedRow row;
    row.bytes = bytes;
    Step step = request.step;
    step.bytes = bytes;
    row.result.error = Unsupported(step);
    if (!row.result.error) {
      step.sequence = ++sequence_;
      Ask(MessageType::kTable, step, MessageType::kTableDone);
      if (ending_) return;
      const std::vector<TableResult> results = Answers<TableResult>();
      row.result = results[0];
      for (const TableResult& result : results) {
        if (result.error && (!row.result.error || result.error->fatal)) row.result = result;
      }
    }
    const std::optional<StepError> error = row.result.error;
    rows.push_back(std::move(row));
    if (error && error->fatal) {
      End(kFailed, TroubleOf(*error), /*told=*/true);
      break;
    }
  }
  Say(TableAnswer(request.id, rows));
}

bool Conductor::RunStep(Step* step, Point* point) {
  while (!ending_ && output_.waiting() > kMostUnread) Pump(Never());
  if (ending_) return false;
  step->sequence = ++sequence_;
  Ask(MessageType::kStep, *step, MessageType::kStepDone);
  if (ending_) return false;
  *point = Together(*step, Answers<StepResult>(), ranks_);
  return true;
}

void Conductor::Ask(MessageType question, const Step& step, MessageType answer) {
  SendToAll(question, Written(step));
  const auto limit = std::chrono::duration<double>(step.timeout_s) + kBeyondTimeout;
  if (WaitForAll(answer, Clock::now() + std::chrono::duration_cast<Clock::duration>(limit)) ||
      ending_ || cut_) {
    return;
  }
  std::vector<int> silent;
  for (size_t process = 0; process < answers_.size(); ++process) {
    if (!answers_[process]) silent.push_back(static_cast<int>(process));
  }
  const StepError error = {ErrorKind::kTimeout,
                           InWords(step) + " is stuck: " + Processes(silent) +
                               " gave no answer within " +
                               std::to_string(static_cast<int64_t>(limit.count())) + " s",
                           -1, true};
  StepResult no_step;
  no_step.error = error;
  TableResult no_table;
  no_table.error = error;
  for (const int process : silent) {
    answers_[static_cast<size_t>(process)] =
        answer == MessageType::kStepDone ? Written(no_step) : Written(no_table);
  }
}

template <typename Result>
std::vector<Result> Conductor::Answers() const {
  std::vector<Result> results;
  for (const std::optional<std::string>& answer : answers_) {
    Result result;
    if (answer && !Read(*answer, &result)) {
      result = Result();
      result.error = StepError{ErrorKind::kNccl, "an answer could not be read", -1, true};
    }
    results.push_back(std::move(result));
  }
  return results;
}

void Conductor::SendToAll(MessageType type, std::string_view payload) {
  for (Wire& wire : wires_) wire.Send(type, payload);
}

bool Conductor::WaitForAll(MessageType type, Clock::time_point until) {
  awaited_ = type;
  cut_.reset();
  std::fill(answers_.begin(), answers_.end(), std::nullopt);
  const auto all = [this] {
    return std::all_of(answers_.begin(), answers_.end(),
                       [](const auto& answer) { return answer.has_value(); });
  };
  while (!ending_ && !all()) {
    const Clock::time_point limit = cut_ ? std::min(until, *cut_) : until;
    if (Clock::now() >= limit) return false;
    Pump(limit);
  }
  return !ending_;
}

void Conductor::Pump(Clock::time_point until, bool wants_input) {
  std::vector<pollfd> watched;
  const bool can_write = output_.broken().empty() && surroundings_.output >= 0;
  watched.push_back({ending_ ? -1 : surroundings_.interrupt, POLLIN, 0});
  watched.push_back({wants_input ? surroundings_.input : -1, POLLIN, 0});
  // Without anything to write it tells when the reader goes.
  watched.push_back({can_write ? output_.descriptor() : -1,
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
  if (watched[1].revents != 0) {
    char bytes[4096];
    const ssize_t got = read(surroundings_.input, bytes, sizeof bytes);
    if (got > 0) {
      input_.Add({bytes, static_cast<size_t>(got)});
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      input_.End();
    }
  }
  output_.Flush();
  if ((watched[2].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)
    output_.Break("its reader has gone");
  if (!output_.broken().empty() && !quitting_) {
    End(kFailed, {"output", "standard output cannot be written: " + output_.broken(), "", -1},
        /*told=*/true);
  }
  for (size_t process = 0; process < wires_.size(); ++process) {
    Wire& wire = wires_[process];
    if (!wire.broken().empty()) continue;
    wire.Flush();
    std::vector<Message> messages;
    wire.Receive(&messages);
    for (Message& message : messages) Handle(process, std::move(message));
    wire.KeepAlive(Clock::now());
    if (!wire.broken().empty()) Lost(process, wire.broken());
  }
}

void Conductor::Handle(size_t process, Message message) {
  if (message.type == MessageType::kGather) {
    Gather(process, std::move(message.payload));
  } else if (message.type == MessageType::kLeaving) {
    Lost(process, message.payload);
  } else if (message.type == awaited_) {
    if (IsFatal(message.type, message.payload) && !cut_) cut_ = Clock::now() + kAfterFatal;
    answers_[process] = std::move(message.payload);
  }
}

void Conductor::Gather(size_t process, std::string part) {
  gathered_[process] = std::move(part);
  std::vector<std::string> parts;
  for (const std::optional<std::string>& one : gathered_) {
    if (!one) return;
    parts.push_back(*one);
  }
  std::fill(gathered_.begin(), gathered_.end(), std::nullopt);
  SendToAll(MessageType::kGathered, Written(parts));
}

void Conductor::Lost(size_t process, const std::string& why) {
  gone_[process] = true;
  if (quitting_ && answers_[process]) return;  // it has closed its backend and may go
  const int rank =
      infos_.empty() || infos_[process].gpus.empty() ? -1 : infos_[process].gpus[0].rank;
  End(kFailed, {"died", "process " + std::to_string(process) + " has gone: " + why,
                "its own standard error may say why", rank});
}

void Conductor::End(int status, Trouble trouble, bool told) {
  if (ending_) return;
  ending_ = Ending{status, std::move(trouble), told};
  surroundings_.ending(status);
}

int Conductor::FinishWell() {
  quitting_ = true;
  SendToAll(MessageType::kQuit, {});
  if (!WaitForAll(MessageType::kClosed, Clock::now() + kCloseLimit)) {
    End(kFailed, {"timeout", "the communicator could not be closed", "", -1});
    return kFailed;
  }
  Say(QuitAnswer(id_));
  while (!ending_ && output_.broken().empty() && output_.waiting() > 0) Pump(Never());
  return kOk;
}

int Conductor::FinishBadly() {
  const Ending ending = *ending_;
  if (!ending.told) Say(ErrorAnswer(id_, ending.trouble));
  std::fprintf(stderr, "error: %s\n", ending.trouble.text.c_str());
  if (!ending.trouble.hint.empty())
    std::fprintf(stderr, "hint:  %s\n", ending.trouble.hint.c_str());
  SendToAll(MessageType::kAbort, Written(Order{ending.status, ending.trouble.text}));
  const Clock::time_point until = Clock::now() + kEndLimit;
  const auto all_gone = [this] {
    return std::find(gone_.begin(), gone_.end(), false) == gone_.end();
  };
  while (Clock::now() < until && !(all_gone() && output_.waiting() == 0)) Pump(until);
  return ending.status;
}

void Conductor::Say(const json::Value& answer) { output_.Write(json::Write(answer)); }

std::string Conductor::Processes(const std::vector<int>& processes) const {
  return (processes.size() == 1 ? "process " : "processes ") + InRanges(processes);
}

}  // namespace nccltune::bench
