// SPDX-License-Identifier: Apache-2.0
//
// Parsers for request members that the field reader (common/json_fields.h) does not cover.
#ifndef NCCLTUNE_BENCH_REQUEST_MEMBERS_H_
#define NCCLTUNE_BENCH_REQUEST_MEMBERS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/step.h"
#include "common/json.h"
#include "common/vocabulary.h"

namespace nccltune::bench {

// Collects the first problem. After a problem, the functions do nothing.
class Members {
 public:
  explicit Members(std::string* problem) : problem_(problem) {}

  // Reads a number in (0, longest]. A null `value` leaves *out unchanged.
  void Seconds(std::string_view key, const json::Value* value, double longest, double* out);

  // Finds the enum value of `word`. The problem text suggests the nearest name.
  template <typename Enum>
  void Word(std::string_view key, std::string_view word, Words words, Enum* out) {
    if (const std::optional<int> number = NumberIn(key, word, words)) {
      *out = static_cast<Enum>(*number);
    }
  }

  // Reads `bytes`: distinct integers.
  void Sizes(const json::Value* value, std::vector<size_t>* sizes);

  // Reads `choices`: distinct words or objects.
  void Choices(const json::Value* value, std::vector<Choice>* choices);

 private:
  std::optional<int> NumberIn(std::string_view key, std::string_view word, Words words);
  const json::Value::Array* Items(std::string_view key, const json::Value* value);

  std::string* problem_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REQUEST_MEMBERS_H_
