// SPDX-License-Identifier: Apache-2.0
#include "bench/request.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "common/text.h"
#include "common/vocabulary.h"

namespace nccltune::bench {
namespace {

using json::Value;

constexpr int64_t kLargestSize = int64_t{1} << 50;
constexpr size_t kMaxItems = 4096;
constexpr int64_t kMaxChannels = 64;
constexpr int64_t kLargestChunk = int64_t{1} << 30;
constexpr int64_t kMaxRounds = 1'000'000;
constexpr int64_t kMaxPoints = 1'000'000;  // limit for one round
constexpr int64_t kMaxIterations = 1'000'000;
constexpr int kLongestTimeout = 3600;  // seconds
constexpr size_t kLongestId = 200;
constexpr int64_t kMaxGroupCalls = 1024;

std::string ParseChoice(const Value& value, Choice* choice);

// Parses members and stores the first problem. After a problem, the functions do nothing.
class Members {
 public:
  explicit Members(std::string* problem) : problem_(problem) {}

  // Sets *out to the enum value named `word`. If there is none, the problem text suggests the
  // nearest name.
  template <typename Enum>
  void Word(std::string_view key, std::string_view word, Words words, Enum* out) {
    if (!problem_->empty()) return;
    if (const std::optional<int> number = NumberOf(words, word)) {
      *out = static_cast<Enum>(*number);
      return;
    }
    *problem_ = "'" + std::string(key) + "': " + Quoted(word) + " is none of " + Listed(words);
    const std::string_view nearest = Nearest(words, word);
    if (!nearest.empty()) *problem_ += "; did you mean " + Quoted(nearest) + "?";
  }

  // Reads the member `timeout_s`. A null `value` leaves *out unchanged.
  void Timeout(const Value* value, double* out) {
    if (value == nullptr || !problem_->empty()) return;
    double number = 0;
    if (!value->ToNumber(&number)) {
      *problem_ = std::string("'timeout_s' must be a number, not ") + value->KindName();
    } else if (!(number > 0 && number <= kLongestTimeout)) {
      *problem_ = "'timeout_s' must be above 0 and at most " + std::to_string(kLongestTimeout);
    } else {
      *out = number;
    }
  }

  // Reads the member `bytes`, an array of distinct integers.
  void Sizes(const Value* value, std::vector<size_t>* sizes) {
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

  // Reads the member `choices`, an array of distinct words or objects.
  void Choices(const Value* value, std::vector<Choice>* choices) {
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

 private:
  const Value::Array* Items(std::string_view key, const Value* value) {
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

  std::string* problem_;
};

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

std::string ParseMeasure(const Value& value, int ranks, BenchRequest* request) {
  Step& step = request->step;
  std::string op;
  std::string collective;
  std::string dtype = "float";
  std::string redop = "sum";
  const Value* id = nullptr;
  const Value* bytes = nullptr;
  const Value* choices = nullptr;
  const Value* timeout = nullptr;
  int64_t root = 0;
  int64_t group_calls = 1;
  int64_t rounds = request->rounds;
  int64_t first_round = 0;
  int64_t default_repeats = request->default_repeats;
  int64_t warmup = 2;
  int64_t iterations = 20;
  int64_t seed = 0;
  std::string problem = json::Fields(value)
                            .Required("op", &op)
                            .Optional("id", &id)
                            .Required("collective", &collective)
                            .Optional("bytes", &bytes)
                            .Optional("choices", &choices)
                            .Optional("dtype", &dtype)
                            .Optional("redop", &redop)
                            .Optional("root", &root, 0, ranks - 1)
                            .Optional("registered", &step.registered)
                            .Optional("graph", &step.graph)
                            .Optional("group_calls", &group_calls, 1, kMaxGroupCalls)
                            .Optional("load", &step.load)
                            .Optional("rounds", &rounds, 1, kMaxRounds)
                            .Optional("first_round", &first_round, 0, kMaxRounds)
                            .Optional("default_repeats", &default_repeats, 1, kMaxRounds)
                            .Optional("warmup", &warmup, 0, kMaxIterations)
                            .Optional("iterations", &iterations, 1, kMaxIterations)
                            .Optional("seed", &seed, 0, std::numeric_limits<int64_t>::max())
                            .Optional("check", &step.check)
                            .Optional("timeout_s", &timeout)
                            .Finish();
  Members members(&problem);
  members.Word("collective", collective, AllCollectiveNames(), &step.collective);
  members.Word("dtype", dtype, DtypeNames(), &step.dtype);
  members.Word("redop", redop, RedopNames(), &step.redop);
  members.Sizes(bytes, &request->bytes);
  members.Choices(choices, &request->choices);
  members.Timeout(timeout, &step.timeout_s);
  if (!problem.empty()) return problem;
  const bool chooses =
      std::any_of(request->choices.begin(), request->choices.end(),
                  [](const Choice& choice) { return choice.kind != Choice::Kind::kDefault; });
  if (chooses && !IsTuned(step.collective)) {
    return "NCCL asks no tuner about " + collective + ": its only choice is default";
  }
  const int64_t timings_of_size =
      static_cast<int64_t>(request->choices.size()) + default_repeats - 1;
  if (timings_of_size * static_cast<int64_t>(request->bytes.size()) > kMaxPoints) {
    return "one round has more than " + std::to_string(kMaxPoints) + " points";
  }
  request->rounds = static_cast<int>(rounds);
  request->first_round = static_cast<int>(first_round);
  request->default_repeats = static_cast<int>(default_repeats);
  step.root = static_cast<int>(root);
  step.group_calls = static_cast<int>(group_calls);
  step.warmup = static_cast<int>(warmup);
  step.iterations = static_cast<int>(iterations);
  step.seed = static_cast<uint64_t>(seed);
  return "";
}

std::string ParseTable(const Value& value, BenchRequest* request) {
  std::string op;
  std::string collective;
  const Value* id = nullptr;
  const Value* bytes = nullptr;
  int64_t group_calls = 1;
  Step& step = request->step;
  std::string problem = json::Fields(value)
                            .Required("op", &op)
                            .Optional("id", &id)
                            .Required("collective", &collective)
                            .Optional("bytes", &bytes)
                            .Optional("registered", &step.registered)
                            .Optional("group_calls", &group_calls, 1, kMaxGroupCalls)
                            .Finish();
  Members members(&problem);
  members.Word("collective", collective, AllCollectiveNames(), &step.collective);
  members.Sizes(bytes, &request->bytes);
  step.group_calls = static_cast<int>(group_calls);
  if (!problem.empty()) return problem;
  if (IsTuned(step.collective)) return "";
  return "NCCL asks no tuner about " + collective + ": it has no table";
}

std::string ParseHello(const Value& value) {
  std::string op;
  const Value* id = nullptr;
  int64_t version = 0;
  std::string problem =
      json::Fields(value)
          .Required("op", &op)
          .Optional("id", &id)
          .Required("schema_version", &version, 0, std::numeric_limits<int64_t>::max())
          .Finish();
  if (problem.empty() && version != kSchemaVersion) {
    return "schema version " + std::to_string(version) + " is not supported, only " +
           std::to_string(kSchemaVersion);
  }
  return problem;
}

std::string ParseQuit(const Value& value) {
  std::string op;
  const Value* id = nullptr;
  return json::Fields(value).Required("op", &op).Optional("id", &id).Finish();
}

std::string ParseId(const Value& value, Value* id) {
  const Value* member = value.Find("id");
  if (member == nullptr || member->IsNull()) return "";
  const std::string* text = member->AsString();
  if (member->AsInt() == nullptr && text == nullptr) {
    return std::string("'id' must be an integer or a string, not ") + member->KindName();
  }
  if (text != nullptr && text->size() > kLongestId) return "'id' is too long";
  *id = *member;
  return "";
}

std::string Parse(std::string_view line, int ranks, BenchRequest* request) {
  Value value;
  json::Error error;
  if (!json::Parse(line, &value, &error)) {
    return "not JSON: " + error.message + " at byte " + std::to_string(error.offset);
  }
  if (value.AsObject() == nullptr) {
    return std::string("a request is an object, not ") + value.KindName();
  }
  std::string problem = ParseId(value, &request->id);
  if (!problem.empty()) return problem;
  const Value* op = value.Find("op");
  const std::string* word = op == nullptr ? nullptr : op->AsString();
  if (word == nullptr) return "'op' is missing: hello, measure, table or quit";
  if (*word == "hello") {
    request->kind = BenchRequest::Kind::kHello;
    return ParseHello(value);
  }
  if (*word == "measure") {
    request->kind = BenchRequest::Kind::kMeasure;
    return ParseMeasure(value, ranks, request);
  }
  if (*word == "table") {
    request->kind = BenchRequest::Kind::kTable;
    return ParseTable(value, request);
  }
  if (*word == "quit") return ParseQuit(value);
  return "'op': " + Quoted(*word) + " is none of hello, measure, table, quit";
}

}  // namespace

bool ParseRequest(std::string_view line, int ranks, BenchRequest* request, std::string* error) {
  *request = BenchRequest();
  *error = Parse(line, ranks, request);
  return error->empty();
}

Value ToJson(const Choice& choice) {
  if (choice.kind == Choice::Kind::kDefault) return "default";
  if (choice.kind == Choice::Kind::kTuned) return "tuned";
  Value value;
  value.Set("algorithm", host::AlgorithmName(choice.combination.algorithm));
  value.Set("protocol", host::ProtocolName(choice.combination.protocol));
  if (choice.channels > 0) value.Set("channels", choice.channels);
  if (choice.chunk_bytes > 0) value.Set("chunk_bytes", static_cast<int64_t>(choice.chunk_bytes));
  return value;
}

}  // namespace nccltune::bench
