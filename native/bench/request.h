// SPDX-License-Identifier: Apache-2.0
//
// What is asked of the bench: one JSON object a line. docs/design/bench.md shows them,
// docs/reference/bench.md lists every member.
#ifndef NCCLTUNE_BENCH_REQUEST_H_
#define NCCLTUNE_BENCH_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/step.h"
#include "common/json.h"

namespace nccltune::bench {

inline constexpr int kSchemaVersion = 1;

struct Request {
  enum class Kind { kHello, kMeasure, kTable, kQuit };
  Kind kind = Kind::kQuit;
  json::Value id;  // null, an integer or a string; goes back with each answer

  // measure: what all its steps have in common. table: the call.
  Step step;
  std::vector<size_t> bytes;
  // measure
  std::vector<Choice> choices;
  int rounds = 1;
  int first_round = 0;
  int default_repeats = 1;
  bool by_size = false;
  double target_ms = 5;  // of a timing, where step.iterations is 0
};

// False and *error in words for anything that is no valid request to a run of so many ranks; then
// request->id is as far as it could be read.
bool ParseRequest(std::string_view line, int ranks, Request* request, std::string* error);

// A choice as it stands in requests and answers.
json::Value ToJson(const Choice& choice);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REQUEST_H_
