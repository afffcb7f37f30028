// SPDX-License-Identifier: Apache-2.0
//
// What a study has recorded at one scale.
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

struct Scale {
  int nodes = 0;
  int ranks = 0;
  auto operator<=>(const Scale&) const = default;
};

// What distinguishes recorded calls beside their size. A recording may leave open which type,
// reduction or root it was; it then stands for any.
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

// Predicted costs of one call.
using Costs = std::vector<std::pair<host::Combination, double>>;

class Recording {
 public:
  // Reads platform.json, samples.jsonl and tables.jsonl of the study, of which the first and the
  // last may be missing. Null and *error, with *hint, if it cannot be used. Without `scale` the
  // study must hold one only.
  static std::unique_ptr<Recording> Open(const std::string& study, std::optional<Scale> scale,
                                         std::string* error, std::string* hint);

  const std::string& name() const { return name_; }
  Scale scale() const { return scale_; }
  const std::string& gpu() const { return gpu_; }  // empty: not known
  bool nvls() const { return nvls_; }
  std::optional<NcclVersion> nccl_version() const { return nccl_version_; }
  uint64_t content_hash() const { return content_hash_; }
  const std::map<Collective, std::vector<host::Combination>>& combinations() const {
    return combinations_;
  }
  const std::vector<std::pair<CallKind, Series>>& series() const { return series_; }

  // The timings of the step's call with that choice at its size, of the series that says most about
  // itself; null if nothing was recorded.
  const Series* Find(const Step& step, const Choice& choice) const;

  // Recorded predictions, between two recorded sizes on the straight line in log-log, for the
  // combinations that both have; nothing outside of them.
  std::optional<Costs> FindCosts(Collective collective, size_t bytes) const;

 private:
  friend class RecordingReader;
  Recording() = default;

  std::string name_;
  Scale scale_;
  std::string gpu_;
  bool nvls_ = true;
  std::optional<NcclVersion> nccl_version_;
  uint64_t content_hash_ = 0;
  std::vector<std::pair<CallKind, Series>> series_;
  std::map<Collective, std::vector<host::Combination>> combinations_;  // those recorded
  std::map<std::pair<Collective, size_t>, Costs> tables_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_RECORDING_H_
