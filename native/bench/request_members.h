// SPDX-License-Identifier: Apache-2.0
//
// Members of requests that the field reader (common/json_fields.h) has no call for.
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

// Where there is a problem already nothing is read: the first one stays.
class Members {
 public:
  explicit Members(std::string* problem) : problem_(problem) {}

  // Above 0 and at most `longest`; a null `value` leaves *out alone.
  void Seconds(std::string_view key, const json::Value* value, double longest, double* out);

  // The number of `word` among `words`; the problem names the nearest.
  template <typename Enum>
  void Word(std::string_view key, std::string_view word, Words words, Enum* out) {
    if (const std::optional<int> number = NumberIn(key, word, words)) {
      *out = static_cast<Enum>(*number);
    }
  }

  // `bytes`: integers, each once.
  void Sizes(const json::Value* value, std::vector<size_t>* sizes);

  // `choices`: words or objects, each once.
  void Choices(const json::Value* value, std::vector<Choice>* choices);

 private:
  std::optional<int> NumberIn(std::string_view key, std::string_view word, Words words);
  const json::Value::Array* Items(std::string_view key, const json::Value* value);

  std::string* problem_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REQUEST_MEMBERS_H_
