// SPDX-License-Identifier: Apache-2.0
// Builds the answers of nccltune-bench, one JSON object per line; see docs/reference/bench.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <optional>
#include "bench/backend.h"
#include "bench/request.h"
#include "bench/step.h"
#include "common/json.h"

namespace nccltune::bench {

// The results of one step, combined over all processes.
struct Point {
  Step step;
  double time_us = 0;            // time of one iteration on the slowest rank
  std::vector<double> times_us;  // time of one iteration on each rank, in rank order
  std::optional<double> host_us;
  std::optional<double> load_alone_us;  // of the rank whose load slowed down most
  std::optional<double> load_us;        // of the rank of load_alone_us
  std::optional<int64_t> wrong;         // sum over all ranks; nullopt unless all ranks checked
  std::optional<ExecutedChoice> ran;    // the choice that ran, as process 0 reported it
  std::optional<TunerInputs> seen;      // as process 0 reported them
  bool applied = true;                  // true: the choice was applied in all processes
  std::optional<StepError> error;
};

// Combines the results of all processes, given in process order. A fatal error is reported first,
// then any other error, then a wrong result. If no process failed, each rank from 0 to ranks - 1
// must have a timing; a missing timing is an error.
Point CombineResults(const Step& step, const std::vector<StepResult>& results, int ranks);

// `infos` has one entry for each process, in process order.
json::Value HelloAnswer(const json::Value& id, const std::vector<BackendInfo>& infos,
                        std::string_view version);
json::Value PointAnswer(const json::Value& id, const Point& point, std::string_view source);
json::Value DoneAnswer(const json::Value& id, int64_t points);

struct SizedRow {
  size_t bytes = 0;
  TableResult result;
};
json::Value TableAnswer(const json::Value& id, const std::vector<SizedRow>& rows);
json::Value QuitAnswer(const json::Value& id);

// Describes an invalid request, or the reason why the run ends.
struct ErrorReport {
  std::string kind;  // "request", "start", "signal", "output", or the KindName of a step error
  std::string text;
  std::string hint;
  int rank = -1;
};
json::Value ErrorAnswer(const json::Value& id, const ErrorReport& error_report);

std::string_view KindName(ErrorKind kind);

}  // namespace nccltune::bench
