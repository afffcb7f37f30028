// SPDX-License-Identifier: Apache-2.0
//
// The unit of measuring: one timing of one collective at one size with one choice.
#ifndef NCCLTUNE_BENCH_STEP_H_
#define NCCLTUNE_BENCH_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/words.h"
#include "host/names.h"

namespace nccltune::bench {

struct Choice {
  enum class Kind {
    kDefault,  // NCCL's own: no rule is taken
    kTuned,    // the rules of the loaded configuration decide
    kForced,   // the combination below
  };
  Kind kind = Kind::kDefault;
  host::Combination combination;  // forced: known
  int channels = -1;              // -1: NCCL's own
  size_t chunk_bytes = 0;         // 0: NCCL's own

  bool operator==(const Choice&) const = default;
};

struct Step {
  uint64_t sequence = 0;  // from 1, the same in all processes
  Collective collective = Collective::kAllReduce;
  size_t bytes = 0;  // as the tuner counts: all-gather, reduce-scatter: over all ranks
  Dtype dtype = Dtype::kFloat;
  Redop redop = Redop::kSum;
  int root = 0;
  bool in_place = false;
  bool registered = false;
  bool graph = false;
  bool load = false;  // while the GPUs compute
  // Of the messages that go round beside the calls, again and again; 0: none.
  size_t traffic_bytes = 0;
  Choice choice;
  int warmup = 0;
  int iterations = 1;
  bool check = true;
  double timeout_s = 30;  // for warm-up, timing and check together
  // Where the step stands in its request; what is random about it is drawn from these.
  uint64_t seed = 0;
  int round = 0;
  int repeat = 0;
};

// What ran as far as it is known.
struct Ran {
  host::Combination combination;
  std::optional<int> channels;
  std::optional<size_t> chunk_bytes;

  bool operator==(const Ran&) const = default;
};

enum class ErrorKind {
  kWrong,        // the result was wrong
  kTimeout,      // a stuck collective
  kNccl,         // an NCCL function failed
  kCuda,         // a CUDA function failed
  kMemory,       // does not fit
  kUnsupported,  // cannot be run, or is not in the recording
  kDied,         // a process has gone; only the conductor tells this
};

struct StepError {
  ErrorKind kind = ErrorKind::kUnsupported;
  std::string text;
  int rank = -1;       // -1: no one's in particular
  bool fatal = false;  // nothing more can be run; a timeout always is
};

struct RankTiming {
  int rank = 0;
  double event_us = 0;            // of one iteration, by events on the device
  std::optional<double> host_us;  // of one iteration, first launch to completion
  std::optional<int64_t> wrong;   // elements; none: not checked
  // With a load: of one kernel of it, by itself and while the calls ran.
  std::optional<double> load_alone_us = std::nullopt;
  std::optional<double> load_us = std::nullopt;
  // With traffic: of one exchange of it, by itself and while the calls ran.
  std::optional<double> traffic_alone_us = std::nullopt;
  std::optional<double> traffic_us = std::nullopt;
};

// Of one process.
struct StepResult {
  std::vector<RankTiming> timings;  // of its ranks; empty after an error other than kWrong
  std::optional<Ran> ran;
  bool applied = true;  // false: NCCL could not run the forced choice
  std::optional<StepError> error;
};

// NCCL's own predictions for one call.
struct TableRow {
  // In microseconds; the combinations that NCCL can run. None: legal, the cost is not known.
  std::vector<std::pair<host::Combination, std::optional<double>>> costs;
  host::Combination predicted;  // unknown where the costs do not tell
};

struct TableResult {
  TableRow row;
  std::optional<StepError> error;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_STEP_H_
