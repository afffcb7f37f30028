// SPDX-License-Identifier: Apache-2.0
#include "bench/answer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nccltune::bench {
namespace {

int Severity(const StepError& error) {
  if (error.fatal) return 2;
  return error.kind == ErrorKind::kWrong ? 0 : 1;
}

// Returns the error for a rank without a timing. A correct backend never causes this error. Without
// the error, the point would look like a valid timing.
StepError Missing(int rank) {
  return {ErrorKind::kNccl, "no timing came from rank " + std::to_string(rank), rank, true};
}

}  // namespace

Point CombineResults(const Step& step, const std::vector<StepResult>& results, int ranks) {
  Point point;
  point.step = step;
  if (!results.empty()) {
    point.ran = results.front().ran;
    point.seen = results.front().seen;
  }
  std::vector<std::optional<double>> times(static_cast<size_t>(ranks));
  const bool any = std::any_of(results.begin(), results.end(),
                               [](const StepResult& result) { return !result.timings.empty(); });
  bool all_host = any;
  bool all_checked = any;
  double host_us = 0;
  int64_t wrong = 0;
  for (const StepResult& result : results) {
    point.applied = point.applied && result.applied;
    if (result.error && (!point.error || Severity(*result.error) > Severity(*point.error))) {
      point.error = result.error;
    }
    for (const RankTiming& timing : result.timings) {
      const bool known = timing.rank >= 0 && timing.rank < ranks;
      if (known && timing.event_us > 0 && std::isfinite(timing.event_us)) {
        times[static_cast<size_t>(timing.rank)] = timing.event_us;
      }
      all_host = all_host && timing.host_us.has_value();
      host_us = std::max(host_us, timing.host_us.value_or(0));
      all_checked = all_checked && timing.wrong.has_value();
      wrong += timing.wrong.value_or(0);
      if (timing.load_us && timing.load_alone_us) {
        const double slower = *timing.load_us / *timing.load_alone_us;
        if (!point.load_us || slower > *point.load_us / *point.load_alone_us) {
          point.load_us = timing.load_us;
          point.load_alone_us = timing.load_alone_us;
        }
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::optional<double>& time = times[static_cast<size_t>(rank)];
    if (!time && !point.error) point.error = Missing(rank);
    point.times_us.push_back(time.value_or(0));
  }
  point.time_us = *std::max_element(point.times_us.begin(), point.times_us.end());
  if (all_host) point.host_us = host_us;
  if (all_checked) point.wrong = wrong;
  if (wrong > 0 && !point.error) {
    point.error = StepError{ErrorKind::kWrong, std::to_string(wrong) + " elements were wrong"};
  }
  return point;
}
namespace {

using json::Value;

Value TextOrNull(const std::string& text) { return text.empty() ? Value() : Value(text); }

Value RankOrNull(int rank) { return rank < 0 ? Value() : Value(rank); }

// Rounds to 0.1 ns. Clocks and CUDA events are not more precise.
double Rounded(double microseconds) { return std::round(microseconds * 1e4) / 1e4; }

template <typename T>
Value OrNull(const std::optional<T>& value) {
  return value ? Value(*value) : Value();
}

Value ToJson(const host::Combination& combination) {
  if (!combination.known()) return {};
  Value value;
  value.Set("algorithm", host::AlgorithmName(combination.algorithm));
  value.Set("protocol", host::ProtocolName(combination.protocol));
  return value;
}

Value ToJson(const std::optional<ExecutedChoice>& ran) {
  if (!ran || (!ran->combination.known() && !ran->channels && !ran->chunk_bytes)) return {};
  Value value;
  const bool known = ran->combination.known();
  value.Set("algorithm", known ? Value(host::AlgorithmName(ran->combination.algorithm)) : Value());
  value.Set("protocol", known ? Value(host::ProtocolName(ran->combination.protocol)) : Value());
  value.Set("channels", OrNull(ran->channels));
  if (ran->chunk_bytes) value.Set("chunk_bytes", static_cast<int64_t>(*ran->chunk_bytes));
  return value;
}

Value ToJson(const TunerInputs& seen) {
  Value value;
  value.Set("pipe_ops", seen.pipe_ops);
  value.Set("registered", OrNull(seen.registered));
  return value;
}

Value ToJson(const StepError& error) {
  Value value;
  value.Set("kind", KindName(error.kind));
  value.Set("text", error.text);
  value.Set("rank", RankOrNull(error.rank));
  return value;
}

template <typename Enum>
Value NamesOf(const std::vector<Enum>& numbers, Words words) {
  Value names = Value::EmptyArray();
  for (const Enum number : numbers) names.Append(words[static_cast<size_t>(number)]);
  return names;
}

Value Answer(const char* op, const Value& id) {
  Value answer;
  answer.Set("op", op);
  answer.Set("id", id);
  return answer;
}

}  // namespace

std::string_view KindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kWrong:
      return "wrong";
    case ErrorKind::kTimeout:
      return "timeout";
    case ErrorKind::kNccl:
      return "nccl";
    case ErrorKind::kCuda:
      return "cuda";
    case ErrorKind::kMemory:
      return "memory";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kDied:
      return "died";
  }
  return "?";
}

Value HelloAnswer(const Value& id, const std::vector<BackendInfo>& infos,
                  std::string_view version) {
  const BackendInfo& info = infos.front();
  Value nccl;
  nccl.Set("version", TextOrNull(info.nccl_version));
  nccl.Set("path", TextOrNull(info.nccl_path));
  nccl.Set("from", TextOrNull(info.nccl_from));
  Value tuner;
  tuner.Set("path", info.tuner_path);
  tuner.Set("control", info.tuner_control);
  tuner.Set("interface", info.tuner_interface == 0 ? Value() : Value(info.tuner_interface));
  Value gpus = Value::EmptyArray();
  for (const BackendInfo& of_process : infos) {
    for (const GpuInfo& gpu : of_process.gpus) {
      Value one;
      one.Set("rank", gpu.rank);
      one.Set("name", TextOrNull(gpu.name));
      one.Set("host_hash", TextOrNull(gpu.host_hash));
      gpus.Append(std::move(one));
    }
  }
  Value can;
  can.Set("collectives", NamesOf(info.collectives, AllCollectiveNames()));
  can.Set("dtypes", NamesOf(info.dtypes, DtypeNames()));
  can.Set("redops", NamesOf(info.redops, RedopNames()));
  can.Set("registered", info.registered);
  can.Set("graph", info.graph);
  can.Set("group_calls", info.group_calls);
  can.Set("load", info.load);
  can.Set("chunk", info.chunk);
  Value answer = Answer("hello", id);
  answer.Set("schema_version", kSchemaVersion);
  answer.Set("version", version);
  answer.Set("backend", info.backend);
  answer.Set("nccl", std::move(nccl));
  answer.Set("driver", TextOrNull(info.driver));
  answer.Set("tuner", std::move(tuner));
  answer.Set("nodes", info.nodes);
  answer.Set("ranks", info.ranks);
  answer.Set("processes", static_cast<int64_t>(infos.size()));
  answer.Set("gpus", std::move(gpus));
  answer.Set("can", std::move(can));
  return answer;
}

Value PointAnswer(const Value& id, const Point& point, std::string_view source) {
  Value answer = Answer("point", id);
  answer.Set("bytes", static_cast<int64_t>(point.step.bytes));
  answer.Set("choice", bench::ToJson(point.step.choice));
  answer.Set("ran", ToJson(point.ran));
  if (point.seen) answer.Set("seen", ToJson(*point.seen));
  answer.Set("applied", point.applied);
  answer.Set("round", point.step.round);
  answer.Set("repeat", point.step.repeat);
  answer.Set("iterations", point.step.iterations);
  if (point.error) {
    answer.Set("wrong", OrNull(point.wrong));
    answer.Set("error", ToJson(*point.error));
  } else {
    Value times = Value::EmptyArray();
    for (const double time : point.times_us) times.Append(Rounded(time));
    answer.Set("time_us", Rounded(point.time_us));
    answer.Set("times_us", std::move(times));
    answer.Set("host_us", point.host_us ? Value(Rounded(*point.host_us)) : Value());
    answer.Set("wrong", OrNull(point.wrong));
    if (point.load_alone_us && point.load_us) {
      answer.Set("load_alone_us", Rounded(*point.load_alone_us));
      answer.Set("load_us", Rounded(*point.load_us));
    }
  }
  answer.Set("source", source);
  return answer;
}

Value DoneAnswer(const Value& id, int64_t points) {
  Value answer = Answer("done", id);
  answer.Set("points", points);
  return answer;
}

Value TableAnswer(const Value& id, const std::vector<SizedRow>& rows) {
  Value listed = Value::EmptyArray();
  for (const auto& [bytes, result] : rows) {
    Value row;
    row.Set("bytes", static_cast<int64_t>(bytes));
    if (result.error) {
      row.Set("error", ToJson(*result.error));
    } else {
      Value costs = Value::EmptyObject();
      for (const auto& [combination, cost] : result.row.costs) {
        costs.Set(host::CombinationName(combination), OrNull(cost));
      }
      row.Set("costs", std::move(costs));
      row.Set("predicted", ToJson(result.row.predicted));
      const std::optional<TunerInputs>& seen = result.row.seen;
      if (seen) row.Set("seen", ToJson(*seen));
    }
    listed.Append(std::move(row));
  }
  Value answer = Answer("table", id);
  answer.Set("rows", std::move(listed));
  return answer;
}

Value QuitAnswer(const Value& id) { return Answer("quit", id); }

Value ErrorAnswer(const Value& id, const ErrorReport& error_report) {
  Value answer = Answer("error", id);
  answer.Set("kind", error_report.kind);
  answer.Set("text", error_report.text);
  answer.Set("hint", TextOrNull(error_report.hint));
  answer.Set("rank", RankOrNull(error_report.rank));
  return answer;
}

}  // namespace nccltune::bench
