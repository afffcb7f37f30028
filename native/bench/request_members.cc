// SPDX-License-Identifier: Apache-2.0
#include "bench/request_members.h"

#include <algorithm>
#include <cstdint>

#include "common/json_fields.h"
#include "common/text.h"

namespace nccltune::bench {
namespace {

using json::Value;

constexpr int64_t kLargestSize = int64_t{1} << 50;
constexpr size_t kMaxItems = 4096;
constexpr int64_t kMaxChannels = 64;
constexpr int64_t kLargestChunk = int64_t{1} << 30;

std::string ParseChoice(const Value& value, Choice* choice) {
  if (const std::string* word = value.AsString()) {
    if (*word == "default") return "";
    choice->kind = Choice::Kind::kTuned;
    if (*word == "tuned") return "";
    return Quoted(*word) + " is neither default, nor tuned, nor an object";
  }
  choice->kind = Choice::Kind::kForced;
  std::string algorithm;
  std::string protocol;
  int64_t channels = choice->channels;
  int64_t chunk_bytes = 0;
  std::string problem = json::Fields(value)
                            .Required("algorithm", &algorithm)
                            .Required("protocol", &protocol)
                            .Optional("channels", &channels, 1, kMaxChannels)
                            .Optional("chunk_bytes", &chunk_bytes, 1, kLargestChunk)
                            .Finish();
  Members members(&problem);
  members.Word("algorithm", algorithm, AlgorithmNames(), &choice->combination.algorithm);
  members.Word("protocol", protocol, ProtocolNames(), &choice->combination.protocol);
  choice->channels = static_cast<int>(channels);
  choice->chunk_bytes = static_cast<size_t>(chunk_bytes);
  return problem;
}

}  // namespace

std::optional<int> Members::NumberIn(std::string_view key, std::string_view word, Words words) {
  if (!problem_->empty()) return std::nullopt;
  const std::optional<int> number = NumberOf(words, word);
  if (number) return number;
  *problem_ = "'" + std::string(key) + "': " + Quoted(word) + " is none of " + Listed(words);
  const std::string_view nearest = Nearest(words, word);
  if (!nearest.empty()) *problem_ += "; did you mean " + Quoted(nearest) + "?";
  return std::nullopt;
}

void Members::Seconds(std::string_view key, const Value* value, double longest, double* out) {
  if (value == nullptr || !problem_->empty()) return;
  double number = 0;
  if (!value->ToNumber(&number)) {
    *problem_ = "'" + std::string(key) + "' must be a number, not " + value->KindName();
  } else if (!(number > 0 && number <= longest)) {
    *problem_ = "'" + std::string(key) + "' must be above 0 and at most " +
                std::to_string(static_cast<int64_t>(longest));
  } else {
    *out = number;
  }
}

void Members::Sizes(const Value* value, std::vector<size_t>* sizes) {
  const Value::Array* items = Items("bytes", value);
  if (items == nullptr) return;
  for (const Value& item : *items) {
    const int64_t* size = item.AsInt();
    if (size == nullptr || *size < 1 || *size > kLargestSize) {
      *problem_ = "'bytes' must hold integers from 1 to " + std::to_string(kLargestSize);
      return;
    }
    sizes->push_back(static_cast<size_t>(*size));
  }
  std::vector<size_t> sorted = *sizes;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) *problem_ = "'bytes' holds " + std::to_string(*twice) + " twice";
}

void Members::Choices(const Value* value, std::vector<Choice>* choices) {
  const Value::Array* items = Items("choices", value);
  if (items == nullptr) return;
  for (const Value& item : *items) {
    Choice choice;
    *problem_ = ParseChoice(item, &choice);
    if (problem_->empty() &&
        std::find(choices->begin(), choices->end(), choice) != choices->end()) {
      *problem_ = "it is listed twice";
    }
    if (!problem_->empty()) {
      *problem_ = "'choices'[" + std::to_string(choices->size()) + "]: " + *problem_;
      return;
    }
    choices->push_back(choice);
  }
}

const Value::Array* Members::Items(std::string_view key, const Value* value) {
  if (!problem_->empty()) return nullptr;
  if (value == nullptr) {
    *problem_ = "'" + std::string(key) + "' is missing";
    return nullptr;
  }
  const Value::Array* items = value->AsArray();
  if (items == nullptr) {
    *problem_ = "'" + std::string(key) + "' must be an array, not " + value->KindName();
  } else if (items->empty() || items->size() > kMaxItems) {
    *problem_ = "'" + std::string(key) + "' must hold from 1 to " + std::to_string(kMaxItems);
  }
  return problem_->empty() ? items : nullptr;
}

}  // namespace nccltune::bench
