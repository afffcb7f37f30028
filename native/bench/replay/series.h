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
  bool checked = false;  // true: according to the recording, the result was checked and right
  std::optional<ExecutedChoice> ran;  // the choice that ran, according to the recording
};

class Series {
 public:
  void Add(size_t bytes, const Timing& timing) { sizes_[bytes].push_back(timing); }

  // Draws a timing. At a recorded size, each timing of that size is equally likely. Between two
  // recorded sizes, the median is interpolated (log size, log time). The result is the interpolated
  // median, multiplied by a random timing of the nearer size and divided by the median of that
  // size. Returns nullopt outside the recorded sizes.
  std::optional<Timing> Draw(size_t bytes, Random* random) const;

  bool Covers(size_t bytes) const;

 private:
  std::map<size_t, std::vector<Timing>> sizes_;
};

// Returns the median time. `timings` must not be empty.
double MedianTime(const std::vector<Timing>& timings);

// Returns the value at `bytes`, interpolated linearly in log size and log value. `bytes` must be
// between the two sizes.
double Between(size_t bytes, size_t low_bytes, double low, size_t high_bytes, double high);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_SERIES_H_
