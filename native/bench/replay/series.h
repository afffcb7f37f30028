// SPDX-License-Identifier: Apache-2.0
//
// The recorded timings of one kind of call over its sizes, and random draws from them.
#ifndef NCCLTUNE_BENCH_REPLAY_SERIES_H_
#define NCCLTUNE_BENCH_REPLAY_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "bench/random.h"
#include "bench/step.h"

namespace nccltune::bench {

struct Timing {
  double time_us = 0;
  bool checked = false;    // the recording states a check without a wrong result
  std::optional<Ran> ran;  // what ran, according to the recording
};

class Series {
 public:
  void Add(size_t bytes, const Timing& timing) { sizes_[bytes].push_back(timing); }

  // Draws a timing. At a recorded size, it is one of that size's timings, each equally likely.
  // Between two recorded sizes, the medians are interpolated (log size, log time). The spread then
  // comes from the nearer size: the median is multiplied by a drawn timing over that size's median.
  // Returns nullopt outside the recorded sizes.
  std::optional<Timing> Draw(size_t bytes, Random* random) const;

  bool Covers(size_t bytes) const;

 private:
  std::map<size_t, std::vector<Timing>> sizes_;
};

// Returns the median time. `timings` must not be empty.
double MedianTime(const std::vector<Timing>& timings);

// Interpolates linearly in log size and log value, for `bytes` between the two sizes.
double Between(size_t bytes, size_t low_bytes, double low, size_t high_bytes, double high);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_SERIES_H_
