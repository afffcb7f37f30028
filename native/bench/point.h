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
  double time_us = 0;            // of the slowest rank
  std::vector<double> times_us;  // of all ranks, in rank order
  std::optional<double> host_us;
  std::optional<double> load_alone_us;  // both of the rank whose load slowed down most
  std::optional<double> load_us;
  std::optional<double> traffic_alone_us;  // both of the slowest rank
  std::optional<double> traffic_us;
  std::optional<int64_t> wrong;  // sum over all ranks; nullopt unless all ranks checked
  std::optional<Ran> ran;        // as process 0 reported it
  bool applied = true;           // in all processes
  std::optional<StepError> error;
};

// Combines the results of all processes, given in process order. The error reported is a fatal one
// if there is any, else any other, else a wrong result. If no process failed, each rank from 0 to
// ranks - 1 must have a timing; a missing one is an error.
Point CombineResults(const Step& step, const std::vector<StepResult>& results, int ranks);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_POINT_H_
