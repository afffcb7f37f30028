// SPDX-License-Identifier: Apache-2.0
//
// Parses lines of a study's files. src/nccltune/model/sample.py and docs/reference/bench.md
// describe the formats.
#ifndef NCCLTUNE_BENCH_REPLAY_STUDY_LINES_H_
#define NCCLTUNE_BENCH_REPLAY_STUDY_LINES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/replay/recording.h"
#include "common/json.h"

namespace nccltune::bench {

// kTaken: the line was read. kPassedOver: the line is valid, but the replay cannot use it.
// kDamaged: the line is not valid. kNewer: a newer version of nccltune wrote the line.
enum class LineResult { kTaken, kPassedOver, kDamaged, kNewer };

// A line of samples.jsonl.
struct Sample {
  CallKind kind;
  size_t bytes = 0;
  std::optional<int64_t> nodes;
  std::optional<int64_t> ranks;
  Timing timing;
  std::string nccl_version;
};

LineResult ReadSample(const json::Value& value, Sample* sample);

// A line of tables.jsonl: NCCL's predictions, in the same form as the bench's answers to `table`.
struct TableLine {
  Collective collective = Collective::kAllReduce;
  size_t bytes = 0;
  std::optional<int64_t> nodes;
  std::optional<int64_t> ranks;
  Costs costs;
};

LineResult ReadTable(const json::Value& value, TableLine* table);

// Returns the member if it is a string, else an empty string.
std::string TextOf(const json::Value& value, std::string_view key);

// Reads an optional integer in [low, kMaxCount]. If the member is missing or null, returns true and
// leaves *out unchanged. Returns false if the member is anything else.
inline constexpr int64_t kMaxCount = 1 << 24;
bool ReadInteger(const json::Value& value, std::string_view key, int64_t low,
                 std::optional<int64_t>* out);

// Returns whether a newer version of nccltune wrote `value`, which is a line of a study's file or
// the content of platform.json.
bool IsNewer(const json::Value& value);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_STUDY_LINES_H_
