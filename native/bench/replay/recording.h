// SPDX-License-Identifier: Apache-2.0
//
// The timings and predictions that a study has recorded at one scale (number of nodes and ranks).
#ifndef NCCLTUNE_BENCH_REPLAY_RECORDING_H_
#define NCCLTUNE_BENCH_REPLAY_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/random.h"
#include "bench/step.h"
#include "common/json.h"
#include "common/nccl_version.h"
#include "host/nccl_rules.h"

namespace nccltune::bench {

struct Timing {
  double time_us = 0;
  bool checked = false;  // true: according to the recording, the result was checked and right
  std::optional<ExecutedChoice> ran;  // the choice that ran, according to the recording
};

class Series {
 public:
  void Add(size_t bytes, const Timing& timing) { sizes_[bytes].push_back(timing); }

  // Draws a timing. At a recorded size, each timing of that size is equally likely. Between two
  // recorded sizes, the median is interpolated (log size, log time). The result is the interpolated
  // median, multiplied by a random timing of the nearer size and divided by the median of that
  // size. Returns nullopt outside the recorded sizes.
  std::optional<Timing> Draw(size_t bytes, Random* random) const;

  bool Covers(size_t bytes) const;

 private:
  std::map<size_t, std::vector<Timing>> sizes_;
};

// Returns the median time. `timings` must not be empty.
double MedianTime(const std::vector<Timing>& timings);

// Returns the value at `bytes`, interpolated linearly in log size and log value. `bytes` must be
// between the two sizes.
double Between(size_t bytes, size_t low_bytes, double low, size_t high_bytes, double high);

struct RecordedScale {
  int nodes = 0;
  int ranks = 0;
  auto operator<=>(const RecordedScale&) const = default;
};

// The properties of recorded calls, except their size. The data type, the reduction or the root may
// be unknown in a recording; an unknown value matches any.
struct CallKind {
  Collective collective = Collective::kAllReduce;
  std::optional<Dtype> dtype;
  std::optional<Redop> redop;
  std::optional<int> root;
  bool in_place = false;
  bool registered = false;
  bool graph = false;
  int group_calls = 1;
  int pipe_ops = 1;  // as NCCL's tuner got it
  Choice choice;     // default or forced

  bool operator==(const CallKind&) const = default;
};

// The predicted cost of each combination for one call, in microseconds.
using Costs = std::vector<std::pair<host::Combination, double>>;

class Recording {
 public:
  // Reads samples.jsonl of the study, and platform.json and tables.jsonl if they exist. Without
  // `scale`, the study must hold samples of a single scale. Returns null with *error and *hint if
  // the study cannot be used.
  static std::unique_ptr<Recording> Open(const std::string& study,
                                         std::optional<RecordedScale> scale, std::string* error,
                                         std::string* hint);

  const std::string& name() const { return name_; }
  RecordedScale scale() const { return scale_; }
  const std::string& gpu() const { return gpu_; }  // empty: unknown
  bool nvls() const { return nvls_; }
  std::optional<NcclVersion> nccl_version() const { return nccl_version_; }
  uint64_t content_hash() const { return content_hash_; }
  const std::map<Collective, std::vector<host::Combination>>& combinations() const {
    return combinations_;
  }
  const std::vector<std::pair<CallKind, Series>>& series() const { return series_; }

  // Returns recorded timings of the step's call with that choice, or null if there are none. The
  // timings cover the step's size. Among several such series, the one with the most known
  // properties is used.
  const Series* Find(const Step& step, const Choice& choice) const;

  // Returns the pipe ops that NCCL's tuner got for calls with such buffers and groups, or nullopt
  // if none were recorded. They are always 1 for plain calls.
  std::optional<int> FindPipeOps(bool registered, int group_calls) const;

  // Returns the recorded predictions for the call. Between two recorded sizes, costs are
  // interpolated linearly in log size and log cost, for combinations that both sizes have. Returns
  // nullopt outside the recorded sizes of the collective.
  std::optional<Costs> FindCosts(Collective collective, size_t bytes) const;

 private:
  friend class RecordingReader;
  Recording() = default;

  std::string name_;
  RecordedScale scale_;
  std::string gpu_;
  bool nvls_ = true;
  std::optional<NcclVersion> nccl_version_;
  uint64_t content_hash_ = 0;
  std::vector<std::pair<CallKind, Series>> series_;
  // The combinations with a recorded timing.
  std::map<Collective, std::vector<host::Combination>> combinations_;
  std::map<std::pair<Collective, size_t>, Costs> tables_;
};

// Parses lines of a study's files. src/nccltune/model/sample.py and docs/reference/bench.md
// describe the formats.

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

#endif  // NCCLTUNE_BENCH_REPLAY_RECORDING_H_
