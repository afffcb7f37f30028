// SPDX-License-Identifier: Apache-2.0
//
// Builds the answers of nccltune-bench, one JSON object per line; see docs/reference/bench.md.
#ifndef NCCLTUNE_BENCH_ANSWER_H_
#define NCCLTUNE_BENCH_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "bench/point.h"
#include "bench/request.h"
#include "common/json.h"

namespace nccltune::bench {

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

#endif  // NCCLTUNE_BENCH_ANSWER_H_
