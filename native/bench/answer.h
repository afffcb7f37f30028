// SPDX-License-Identifier: Apache-2.0
//
// What the bench answers: one JSON object a line, see docs/reference/bench.md.
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

// `infos` of all processes, in their order.
json::Value HelloAnswer(const json::Value& id, const std::vector<BackendInfo>& infos,
                        std::string_view version);
// `source` is the backend's name.
json::Value PointAnswer(const json::Value& id, const Point& point, std::string_view source);
json::Value DoneAnswer(const json::Value& id, int64_t points);

struct SizedRow {
  size_t bytes = 0;
  TableResult result;
};
json::Value TableAnswer(const json::Value& id, const std::vector<SizedRow>& rows);
json::Value QuitAnswer(const json::Value& id);

// A request that was wrong, or (fatal) why the bench ends.
struct Trouble {
  std::string kind;  // "request", "start", or a step error's
  std::string text;
  std::string hint;
  int rank = -1;
};
json::Value ErrorAnswer(const json::Value& id, const Trouble& trouble);

std::string_view KindName(ErrorKind kind);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ANSWER_H_
