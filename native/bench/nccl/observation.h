// SPDX-License-Identifier: Apache-2.0
// Observes one call of a step to find the choice that NCCL runs in all calls of the step.
#pragma once

#include <mutex>
#include <optional>

#include "bench/step.h"
#include "bench/tuner_control.h"
#include "common/nccl_version.h"
#include "host/nccl_rules.h"
#include "tuner/control.h"

namespace nccltune::bench {

// Records through NCCL's profiler interface which algorithm, protocol and channels NCCL uses for a
// call. The program itself exports the interface, and NCCL_PROFILER_PLUGIN=STATIC_PLUGIN makes NCCL
// look for it there. The event mask is zero except during the one observed call of a step. So each
// timed call costs NCCL only a load and a test of the mask.

struct ProbedCall {
  host::Combination combination;  // unknown for point-to-point calls
  int channels = 0;               // if the call has several sends and receives: the largest number
};

class CallProbe {
 public:
  // Makes NCCL load the probe; must be called before NCCL reads the environment. Does nothing if
  // NCCL_PROFILER_PLUGIN is "none"; then no call is recorded.
  static void Announce();

  // While an object of this class exists, calls of all threads are recorded.
  class Listening {
   public:
    Listening();
    ~Listening();
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
  };

  // Returns and clears the last call that `rank`, a rank of this process, enqueued. Call Take after
  // that call has completed. Returns nullopt if no call was recorded: before NCCL 2.28, if the
  // probe is not loaded, and under graph capture, because NCCL then enqueues the call later.
  static std::optional<ProbedCall> Take(int rank);
};

struct Observation {
  std::optional<ProbedCall> probed;  // from the profiler; unset before NCCL 2.28 and in a graph
  std::optional<nccltune_tuner_decision> decision;  // from our plugin
  std::optional<nccltune_tuner_table> table;        // NCCL's predictions; nullopt with 2.21
};

// Turns on the records of the profiler and the plugin while at least one GPU of the process
// observes a call. The ranks synchronize between the observed call and the timed calls, so no timed
// call is recorded. The profiler's older record of the rank is dropped first, because it may be
// taken for the record of this call. It may be of the barrier, if another GPU was still observing
// then. Also, some NCCL versions report no event for some calls (2.32.3 for broadcasts).
class Observer {
 public:
  explicit Observer(TunerControl& control) : control_(control) {}

  class ObservationScope {
   public:
    ObservationScope(Observer& observer, int rank);
    ~ObservationScope();
    ObservationScope(const ObservationScope&) = delete;
    ObservationScope& operator=(const ObservationScope&) = delete;

   private:
    Observer& observer_;
    const CallProbe::Listening listening_;
  };

  // Returns the records of the call that `rank` has just completed or captured on its CUDA device.
  // `bytes` is the size of that call.
  Observation Collect(Collective collective, size_t bytes, int rank, int device) const;

 private:
  TunerControl& control_;
  std::mutex mutex_;
  int observers_ = 0;
};

struct AppliedChoice {
  std::optional<ExecutedChoice> ran;
  bool applied = true;
};

// Determines the choice that ran. The profiler's record is used first, then the plugin's decision.
// If the plugin left the choice to NCCL, the result is what NCCL `version` picks from its own
// predictions.
AppliedChoice Judge(const Step& step, const Observation& observation, const NcclVersion& version);

// Returns the inputs of NCCL's decision as the plugin got them; nullopt if they are unknown.
std::optional<TunerInputs> SeenBy(const Observation& observation);

// Returns the predictions that NCCL passed to the plugin, and the combination that NCCL would pick.
TableRow RowOf(const nccltune_tuner_table& table, const NcclVersion& version);

}  // namespace nccltune::bench
