// SPDX-License-Identifier: Apache-2.0
//
// Runs one step on one GPU, from the untimed calls to the check of the result.
#ifndef NCCLTUNE_BENCH_NCCL_STEP_RUN_H_
#define NCCLTUNE_BENCH_NCCL_STEP_RUN_H_

#include <optional>

#include "bench/nccl/gpu.h"
#include "bench/nccl/observation.h"
#include "bench/step.h"

namespace nccltune::bench {

struct StepOutcome {
  RankTiming timing;
  Observation observation;
};

// Runs a prepared step whose choice is set in all processes:
//
// 1. Run one untimed call that is observed. This call also creates the connections of the choice.
//    If the step has a check, the result of this call is compared on the host. Then run the other
//    warm-up calls.
// 2. Run a barrier and wait for its end. So all ranks start the calls within a few microseconds.
// 3. Read the host clock. For small sizes, run one leading call, which absorbs the remaining
//    difference between the start times. Record the start event, run the iterations, record the end
//    event, and poll for the end.
//
// `event_us` is the time between the events divided by the iterations. `host_us` is the host time
// divided by the number of all calls in item 3. As in nccl-tests, `host_us` includes the first
// launch and the polling.
//
// With a load, the load kernels run from before item 2 to the end of item 3. The time of one load
// kernel without the calls is measured first.
//
// With a graph, the iterations are captured once and launched once untimed. After the barrier the
// graph is launched once between the events, without a leading call. The check uses a separate
// graph at the end.
std::optional<StepError> RunStep(Gpu& gpu, const Step& step, Observer& observer,
                                 StepOutcome* outcome);

// Runs one untimed call and sets *observation to the records of that call.
std::optional<StepError> RunOnce(Gpu& gpu, const Step& step, Observer& observer,
                                 Observation* observation);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_STEP_RUN_H_
