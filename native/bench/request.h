// SPDX-License-Identifier: Apache-2.0
// Parses requests to nccltune-bench, one JSON object per line. docs/design/bench.md shows examples,
// docs/reference/bench.md lists every member.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/step.h"
#include "common/json.h"

namespace nccltune::bench {

inline constexpr int kSchemaVersion = 1;

struct BenchRequest {
  enum class Kind { kHello, kMeasure, kTable, kQuit };
  Kind kind = Kind::kQuit;
  json::Value id;  // null, an integer or a string; copied into each answer

  // For kMeasure: the values that are the same in all steps of this request. For kTable: the call
  // whose costs NCCL predicts.
  Step step;
  std::vector<size_t> bytes;
  // The members below are used by kMeasure only.
  std::vector<Choice> choices;
  int rounds = 1;
  int first_round = 0;
  int default_repeats = 1;
};

// Parses one request. `ranks` is the number of ranks of the run. Returns false with *error if the
// request is not valid; then request->id is still set if it could be read.
bool ParseRequest(std::string_view line, int ranks, BenchRequest* request, std::string* error);

// Returns a choice in the JSON form used by requests and answers.
json::Value ToJson(const Choice& choice);

}  // namespace nccltune::bench
