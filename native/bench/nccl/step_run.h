// SPDX-License-Identifier: Apache-2.0
//
// What a GPU does for one step, from the untimed calls to the check of the result.
#ifndef NCCLTUNE_BENCH_NCCL_STEP_RUN_H_
#define NCCLTUNE_BENCH_NCCL_STEP_RUN_H_

#include <optional>

#include "bench/nccl/gpu.h"
#include "bench/nccl/observation.h"
#include "bench/step.h"

namespace nccltune::bench {

struct StepOutcome {
  RankTiming timing;
  Observation seen;
};

// For a prepared step whose choice is in force in all processes:
//
// 1. One untimed call that is looked at (it also connects what the choice uses first), then the
//    rest of the warm-up. If a check is asked for, this call's result is the one that is compared
//    on the host: its buffer is spoilt before.
// 2. All ranks meet in a call that none can leave before all have come, and wait for its end: they
//    start within a few microseconds of each other.
// 3. Host clock, a leading call (of small sizes; it takes up that rest), event, the iterations,
//    event, and polling for the end. `event_us` is the time between the events over the iterations,
//    `host_us` that of the host clock over all calls in between: nccl-tests' method, which counts
//    the first launch and the polling as well.
//
// With a load, kernels run from before 2. to the end of 3.; how long one takes by itself is timed
// before. So it is with traffic, which goes on until all ranks have come to that end.
//
// With a graph the iterations are captured once, launched once untimed, met, and launched once
// between the events, without a leading call; the check is a graph of its own, at the end.
std::optional<StepError> RunStep(Gpu& gpu, const Step& step, Observer& observer,
                                 StepOutcome* outcome);

// One untimed call that is looked at.
std::optional<StepError> RunOnce(Gpu& gpu, const Step& step, Observer& observer, Observation* seen);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_STEP_RUN_H_
