// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_POINT_H_
#define NCCLTUNE_BENCH_POINT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/step.h"

namespace nccltune::bench {

// The results of one step, combined over all processes.
struct Point {
  Step step;
  double time_us = 0;            // time of one iteration on the slowest rank
  std::vector<double> times_us;  // time of one iteration on each rank, in rank order
  std::optional<double> host_us;
  std::optional<double> load_alone_us;  // of the rank whose load slowed down most
  std::optional<double> load_us;        // of the rank of load_alone_us
  std::optional<int64_t> wrong;         // sum over all ranks; nullopt unless all ranks checked
  std::optional<ExecutedChoice> ran;    // the choice that ran, as process 0 reported it
  std::optional<TunerInputs> seen;      // as process 0 reported them
  bool applied = true;                  // true: the choice was applied in all processes
  std::optional<StepError> error;
};

// Combines the results of all processes, given in process order. A fatal error is reported first,
// then any other error, then a wrong result. If no process failed, each rank from 0 to ranks - 1
// must have a timing; a missing timing is an error.
Point CombineResults(const Step& step, const std::vector<StepResult>& results, int ranks);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_POINT_H_
