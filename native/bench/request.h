// SPDX-License-Identifier: Apache-2.0
// Parses requests to nccltune-bench, one JSON object per line. docs/design/bench.md shows examples,
// docs/reference/bench.md lists every member.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <optional>
#include "bench/step.h"
#include "common/json.h"
#include "common/vocabulary.h"

namespace nccltune::bench {

// Parses members and stores the first problem. After a problem, the functions do nothing.
class Members {
 public:
  explicit Members(std::string* problem) : problem_(problem) {}

  // Reads a number of seconds in (0, longest]. A null `value` leaves *out unchanged.
  void Seconds(std::string_view key, const json::Value* value, double longest, double* out);

  // Sets *out to the enum value named `word`. If there is none, the problem text suggests the
  // nearest name.
  template <typename Enum>
  void Word(std::string_view key, std::string_view word, Words words, Enum* out) {
    if (const std::optional<int> number = NumberIn(key, word, words)) {
      *out = static_cast<Enum>(*number);
    }
  }

  // Reads the member `bytes`, an array of distinct integers.
  void Sizes(const json::Value* value, std::vector<size_t>* sizes);

  // Reads the member `choices`, an array of distinct words or objects.
  void Choices(const json::Value* value, std::vector<Choice>* choices);

 private:
  std::optional<int> NumberIn(std::string_view key, std::string_view word, Words words);
  const json::Value::Array* Items(std::string_view key, const json::Value* value);

  std::string* problem_;
};

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
  bool by_size = false;
  double target_ms = 5;  // target duration of one timing, used if step.iterations is 0
};

// Parses one request. `ranks` is the number of ranks of the run. Returns false with *error if the
// request is not valid; then request->id is still set if it could be read.
bool ParseRequest(std::string_view line, int ranks, BenchRequest* request, std::string* error);

// Returns a choice in the JSON form used by requests and answers.
json::Value ToJson(const Choice& choice);

}  // namespace nccltune::bench
