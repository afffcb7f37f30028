// SPDX-License-Identifier: Apache-2.0
//
// The lines of a study's files, as model/sample.py and docs/reference/bench.md have them.
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

// What a line is of no use for is passed over; what is no line of such a file is an error.
enum class LineResult { kTaken, kPassedOver, kDamaged, kNewer };

// samples.jsonl
struct Sample {
  CallKind kind;
  size_t bytes = 0;
  std::optional<int64_t> nodes;
  std::optional<int64_t> ranks;
  Timing timing;
  std::string nccl_version;
};

LineResult ReadSample(const json::Value& value, Sample* sample);

// tables.jsonl: NCCL's predictions, as the bench's own answers to `table` have them.
struct TableLine {
  Collective collective = Collective::kAllReduce;
  size_t bytes = 0;
  std::optional<int64_t> nodes;
  std::optional<int64_t> ranks;
  Costs costs;
};

LineResult ReadTable(const json::Value& value, TableLine* table);

// A member that is a text, else nothing.
std::string TextOf(const json::Value& value, std::string_view key);

// An integer from `low` to kMostCount; false if the member is there and no such number.
inline constexpr int64_t kMostCount = 1 << 24;
bool ReadInteger(const json::Value& value, std::string_view key, int64_t low,
                 std::optional<int64_t>* out);

// Written by a version that came after this one.
bool IsNewer(const json::Value& value);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_STUDY_LINES_H_
