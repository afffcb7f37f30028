// SPDX-License-Identifier: Apache-2.0
//
// What one call of a step shows about what NCCL does with all of them.
#ifndef NCCLTUNE_BENCH_NCCL_OBSERVATION_H_
#define NCCLTUNE_BENCH_NCCL_OBSERVATION_H_

#include <mutex>
#include <optional>

#include "bench/nccl/call_probe.h"
#include "bench/step.h"
#include "bench/tuner_control.h"
#include "common/nccl_version.h"
#include "tuner/control.h"

namespace nccltune::bench {

struct Observation {
  std::optional<ProbedCall> probed;                 // NCCL 2.28 and later, without a graph
  std::optional<nccltune_tuner_decision> decision;  // our plugin's
  std::optional<nccltune_tuner_table> table;        // NCCL's predictions; none with 2.21
};

// Switches on what shows something, for as long as any of the process's GPUs looks. Between the end
// of the call that is looked at and the timed ones all ranks meet, so that no timed call is. What a
// rank has left over from before is dropped: the meeting itself, seen by a GPU that still looked,
// stands there, and not every NCCL tells of every call (2.32.3 is silent on broadcasts).
class Observer {
 public:
  explicit Observer(TunerControl& control) : control_(control) {}

  class Looking {
   public:
    Looking(Observer& observer, int rank);
    ~Looking();
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

   private:
    Observer& observer_;
    const CallProbe::Listening listening_;
  };

  // What there is to know about the call of `bytes` that `rank` has just completed, or captured.
  Observation Seen(Collective collective, size_t bytes, int rank) const;

 private:
  TunerControl& control_;
  std::mutex mutex_;
  int looking_ = 0;
};

struct Verdict {
  std::optional<Ran> ran;
  bool applied = true;
};

// What ran is what NCCL's profiler interface tells; without it, what our plugin chose; where it
// left the choice to NCCL, what `version` picks from its own predictions.
Verdict Judge(const Step& step, const Observation& seen, const NcclVersion& version);

// The predictions as NCCL handed them over, and its pick.
TableRow RowOf(const nccltune_tuner_table& table, const NcclVersion& version);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_OBSERVATION_H_
