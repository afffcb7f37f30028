// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_POINT_H_
#define NCCLTUNE_BENCH_POINT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/step.h"

namespace nccltune::bench {

// One step as all processes saw it together.
struct Point {
  Step step;
  double time_us = 0;            // the slowest rank's
  std::vector<double> times_us;  // of all ranks, in their order
  std::optional<double> host_us;
  std::optional<double> load_alone_us;  // of the rank whose load was slowed down most
  std::optional<double> load_us;
  std::optional<double> traffic_alone_us;  // the slowest rank's
  std::optional<double> traffic_us;
  std::optional<int64_t> wrong;  // of all ranks; none unless all were checked
  std::optional<Ran> ran;        // as process 0 knows it
  bool applied = true;           // everywhere
  std::optional<StepError> error;
};

// `results` are those of all processes, in their order. A fatal error counts most, then any other,
// then a wrong result. Ranks from 0 to ranks - 1 must each have a timing if none failed.
Point Together(const Step& step, const std::vector<StepResult>& results, int ranks);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_POINT_H_
