// SPDX-License-Identifier: Apache-2.0
//
// Parses the request members that common/json_fields.h does not handle.
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

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REQUEST_MEMBERS_H_
