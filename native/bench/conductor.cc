// SPDX-License-Identifier: Apache-2.0
#include "bench/conductor.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/ending.h"
#include "bench/step.h"
#include "bench/wire.h"

namespace nccltune::bench {
namespace {

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

ErrorReport ErrorReportOf(const StepError& error) {
  return {std::string(KindName(error.kind)), error.text, "", error.rank};
}

}  // namespace

Conductor::Conductor(Ensemble* ensemble, Options settings)
    : ensemble_(*ensemble), settings_(std::move(settings)) {}

int Conductor::Run() {
  if (Start()) ServeRequests();
  return Finish();
}

bool Conductor::Start() {
  const bool all = ensemble_.Ask(MessageType::kOpen, {}, MessageType::kOpened,
                                 Ensemble::Clock::now() + settings_.start_limit);
  return !ending() && TakeInfos(all);
}

bool Conductor::TakeInfos(bool all) {
  const auto fail = [this](int status, std::string text, std::string hint, int rank = -1) {
    ensemble_.End(status, {"start", std::move(text), std::move(hint), rank});
    return false;
  };
  std::vector<int> first_ranks;
  for (const std::optional<std::string>& answer : ensemble_.answers()) {
    if (!answer) continue;
    OpenResult opened;
    if (!Read(*answer, &opened)) return fail(kFailed, "an answer could not be read", "");
    if (opened.error) {
      const OpenError& error = *opened.error;
      return fail(StatusOf(error.kind), error.text, error.hint, error.rank);
    }
    first_ranks.push_back(opened.info.gpus.empty() ? -1 : opened.info.gpus.front().rank);
    infos_.push_back(std::move(opened.info));
  }
  if (!all) {
    return fail(kFailed,
                ensemble_.MissingAnswers() + " did not make the communicator within " +
                    InSeconds(settings_.start_limit),
                "set NCCL_DEBUG=INFO to see what it waits for, or raise --start-timeout");
  }
  for (size_t process = 1; process < infos_.size(); ++process) {
    if (infos_[process].nccl_version == infos_[0].nccl_version) continue;
    return fail(kCannotRun,
                "process " + std::to_string(process) + " has NCCL " + infos_[process].nccl_version +
                    ", process 0 has " + infos_[0].nccl_version,
                "give all of them the same library with --nccl");
  }
  ranks_ = infos_[0].ranks;
  ensemble_.SetFirstRanks(std::move(first_ranks));
  return true;
}

void Conductor::ServeRequests() {
  BenchRequest request;
  while (NextRequest(&request)) {
    id_ = request.id;
    switch (request.kind) {
      case BenchRequest::Kind::kHello:
        hello_received_ = true;
        ensemble_.WriteAnswer(HelloAnswer(id_, infos_, settings_.version));
        break;
      case BenchRequest::Kind::kMeasure:
        Measure(request);
        break;
      case BenchRequest::Kind::kTable:
        Table(request);
        break;
      case BenchRequest::Kind::kQuit:
        return;
    }
    if (ending()) return;
    id_ = {};
  }
}

// Reads the next valid request, and answers each invalid request with an error. Returns false at
// the end of input or if the run ends.
bool Conductor::NextRequest(BenchRequest* request) {
  for (;;) {
    std::string line;
    std::string error = "the line is longer than a mebibyte";
    const host::LineBuffer::Result result = ensemble_.NextLine(&line);
    if (result == host::LineBuffer::Result::kEnd) return false;
    if (result == host::LineBuffer::Result::kTooLong) {
      *request = BenchRequest();
    } else if (ParseRequest(line, ranks_, request, &error)) {
      const bool needs_no_hello =
          request->kind == BenchRequest::Kind::kHello || request->kind == BenchRequest::Kind::kQuit;
      if (hello_received_ || needs_no_hello) return true;
      error = "the first request must be hello, with a supported schema_version";
    }
    ensemble_.WriteAnswer(ErrorAnswer(request->id, {"request", error, "", -1}));
  }
}

void Conductor::Measure(const BenchRequest& request) {
  int64_t points = 0;
  for (int i = 0; i < request.rounds; ++i) {
    for (const Step& step : StepsOfRound(request, request.first_round + i)) {
      if (!MeasureStep(request, step)) return;
      ++points;
    }
  }
  ensemble_.WriteAnswer(DoneAnswer(request.id, points));
}

// Runs one step and reports its result. Returns false if the run ends.
bool Conductor::MeasureStep(const BenchRequest& request, const Step& step) {
  ensemble_.WaitForReader();
  if (ending()) return false;
  Point point;
  point.error = Unsupported(step);
  const bool ran = point.error.has_value() || RunStep(step, &point);
  point.step = step;
  if (!ran) {
    // Report that a process was lost during the step, unless a signal ended this process or the
    // error was already reported.
    const RunEnd ending = ensemble_.ending().value_or(RunEnd());
    if (ending.error_report.kind == "signal" || ending.reported) return false;
    point.error =
        StepError{ErrorKind::kDied, ending.error_report.text, ending.error_report.rank, true};
    ensemble_.MarkReported();
  }
  ensemble_.WriteAnswer(PointAnswer(request.id, point, infos_[0].backend));
  if (ran && point.error && point.error->fatal) {
    ensemble_.End(kFailed, ErrorReportOf(*point.error), /*reported=*/true);
  }
  return !ending();
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
  } else if (step.group_calls > 1 && !info.group_calls) {
    what = "a group of calls";
  } else if (step.load && !info.load) {
    what = "a load beside the calls";
  } else if (step.load && step.graph) {
    what = "a load beside CUDA graphs";
  } else if (step.choice.chunk_bytes > 0 && !info.chunk) {
    what = "a forced chunk size";
  } else {
    return std::nullopt;
  }
  return StepError{ErrorKind::kUnsupported, what + " is not supported here"};
}

bool Conductor::RunStep(Step step, Point* point) {
  const auto results = AskAll<StepResult>(MessageType::kStep, step, MessageType::kStepDone);
  if (results) *point = CombineResults(step, *results, ranks_);
  return results.has_value();
}

void Conductor::Table(const BenchRequest& request) {
  std::vector<SizedRow> rows;
  for (const size_t bytes : request.bytes) {
    Step step = request.step;
    step.bytes = bytes;
    rows.push_back({bytes, TableOf(step)});
    if (ending()) return;
    const std::optional<StepError>& error = rows.back().result.error;
    if (error && error->fatal) {
      ensemble_.WriteAnswer(TableAnswer(request.id, rows));
      ensemble_.End(kFailed, ErrorReportOf(*error), /*reported=*/true);
      return;
    }
  }
  ensemble_.WriteAnswer(TableAnswer(request.id, rows));
}

// Returns the table of process 0. If a process failed, returns an error instead; a fatal error is
// preferred. If the run ends, the table is empty.
TableResult Conductor::TableOf(const Step& step) {
  TableResult table;
  table.error = Unsupported(step);
  if (table.error) return table;
  const auto results = AskAll<TableResult>(MessageType::kTable, step, MessageType::kTableDone);
  if (!results) return table;
  table = results->front();
  for (const TableResult& result : *results) {
    if (result.error && (!table.error || result.error->fatal)) table = result;
  }
  return table;
}

template <typename Result>
std::optional<std::vector<Result>> Conductor::AskAll(MessageType question, Step step,
                                                     MessageType answer) {
  step.sequence = ++sequence_;
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::duration<double>(step.timeout_s)) +
                     settings_.beyond_timeout;
  const bool all = ensemble_.Ask(question, Serialize(step), answer, Ensemble::Clock::now() + limit);
  if (!all && ending()) return std::nullopt;
  std::vector<Result> results;
  for (const std::optional<std::string>& bytes : ensemble_.answers()) {
    Result& result = results.emplace_back();
    if (bytes && !Read(*bytes, &result)) {
      result = Result();
      result.error = StepError{ErrorKind::kNccl, "an answer could not be read", -1, true};
    } else if (!bytes && !ensemble_.cut_short()) {
      result.error = StepError{ErrorKind::kTimeout,
                               InWords(step) + " is stuck: " + ensemble_.MissingAnswers() +
                                   " gave no answer within " + InSeconds(limit),
                               -1, true};
    }
  }
  return results;
}

int Conductor::Finish() {
  if (!ending()) {
    if (ensemble_.Quit()) {
      ensemble_.WriteAnswer(QuitAnswer(id_));
      ensemble_.FlushOutput();
      if (!ending()) return kOk;
    }
    ensemble_.End(
        kFailed,
        {"timeout", ensemble_.MissingAnswers() + " could not close the communicator", "", -1});
  }
  const RunEnd ending = ensemble_.ending().value_or(RunEnd());
  const ErrorReport& error_report = ending.error_report;
  if (!ending.reported) ensemble_.WriteAnswer(ErrorAnswer(id_, error_report));
  std::fprintf(stderr, "error: %s\n", error_report.text.c_str());
  if (!error_report.hint.empty()) std::fprintf(stderr, "hint:  %s\n", error_report.hint.c_str());
  ensemble_.Abort(ending);
  return ending.status;
}

}  // namespace nccltune::bench
