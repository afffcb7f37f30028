// SPDX-License-Identifier: Apache-2.0
//
// The timings and predictions that a study has recorded at one scale.
#ifndef NCCLTUNE_BENCH_REPLAY_RECORDING_H_
#define NCCLTUNE_BENCH_REPLAY_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/replay/series.h"
#include "bench/step.h"
#include "common/nccl_version.h"
#include "host/names.h"

namespace nccltune::bench {

struct RecordedScale {
  int nodes = 0;
  int ranks = 0;
  auto operator<=>(const RecordedScale&) const = default;
};

// What distinguishes recorded calls apart from their size. Type, reduction or root may be unknown
// in a recording; an unknown value matches any.
struct CallKind {
  Collective collective = Collective::kAllReduce;
  std::optional<Dtype> dtype;
  std::optional<Redop> redop;
  std::optional<int> root;
  bool in_place = false;
  bool registered = false;
  bool graph = false;
  Choice choice;  // default or forced

  bool operator==(const CallKind&) const = default;
};

// The predicted cost of each combination for one call, in microseconds.
using Costs = std::vector<std::pair<host::Combination, double>>;

class Recording {
 public:
  // Reads samples.jsonl of the study, and platform.json and tables.jsonl if they exist. Without
  // `scale`, the study must hold a single scale. Returns null with *error and *hint if the study
  // cannot be used.
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

  // Returns the recorded timings of the step's call with that choice, from a series that covers its
  // size. Among several, the one with the most known properties is used. Null if there is none.
  const Series* Find(const Step& step, const Choice& choice) const;

  // Returns the recorded predictions. Between two recorded sizes they are interpolated linearly in
  // log size and log cost, for combinations that both sizes have. Outside the recorded sizes there
  // are none.
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

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_RECORDING_H_
