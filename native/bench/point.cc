// SPDX-License-Identifier: Apache-2.0
#include "bench/point.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

namespace nccltune::bench {
namespace {

int Severity(const StepError& error) {
  if (error.fatal) return 2;
  return error.kind == ErrorKind::kWrong ? 0 : 1;
}

// Returns the error for a rank without a timing. A correct backend never causes this error. Without
// the error, the point would look like a valid timing.
StepError Missing(int rank) {
  return {ErrorKind::kNccl, "no timing came from rank " + std::to_string(rank), rank, true};
}

}  // namespace

Point CombineResults(const Step& step, const std::vector<StepResult>& results, int ranks) {
  Point point;
  point.step = step;
  if (!results.empty()) {
    point.ran = results.front().ran;
    point.seen = results.front().seen;
  }
  std::vector<std::optional<double>> times(static_cast<size_t>(ranks));
  const bool any = std::any_of(results.begin(), results.end(),
                               [](const StepResult& result) { return !result.timings.empty(); });
  bool all_host = any;
  bool all_checked = any;
  double host_us = 0;
  int64_t wrong = 0;
  for (const StepResult& result : results) {
    point.applied = point.applied && result.applied;
    if (result.error && (!point.error || Severity(*result.error) > Severity(*point.error))) {
      point.error = result.error;
    }
    for (const RankTiming& timing : result.timings) {
      const bool known = timing.rank >= 0 && timing.rank < ranks;
      if (known && timing.event_us > 0 && std::isfinite(timing.event_us)) {
        times[static_cast<size_t>(timing.rank)] = timing.event_us;
      }
      all_host = all_host && timing.host_us.has_value();
      host_us = std::max(host_us, timing.host_us.value_or(0));
      all_checked = all_checked && timing.wrong.has_value();
      wrong += timing.wrong.value_or(0);
      if (timing.load_us && timing.load_alone_us) {
        const double slower = *timing.load_us / *timing.load_alone_us;
        if (!point.load_us || slower > *point.load_us / *point.load_alone_us) {
          point.load_us = timing.load_us;
          point.load_alone_us = timing.load_alone_us;
        }
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::optional<double>& time = times[static_cast<size_t>(rank)];
    if (!time && !point.error) point.error = Missing(rank);
    point.times_us.push_back(time.value_or(0));
  }
  point.time_us = *std::max_element(point.times_us.begin(), point.times_us.end());
  if (all_host) point.host_us = host_us;
  if (all_checked) point.wrong = wrong;
  if (wrong > 0 && !point.error) {
    point.error = StepError{ErrorKind::kWrong, std::to_string(wrong) + " elements were wrong"};
  }
  return point;
}

}  // namespace nccltune::bench
