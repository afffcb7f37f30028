// SPDX-License-Identifier: Apache-2.0
//
// The recorded timings of one kind of call over its sizes, and new ones drawn from them.
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
  bool checked = false;    // the recording says that its result was right
  std::optional<Ran> ran;  // what the recording says that ran
};

class Series {
 public:
  void Add(size_t bytes, const Timing& timing) { sizes_[bytes].push_back(timing); }

  // At a recorded size one of its timings, each as likely as any other. Between two recorded sizes
  // the medians' straight line in log size and log time, times how far one of the nearer size's
  // timings is from that size's median. Outside of the recorded sizes, nothing.
  std::optional<Timing> Draw(size_t bytes, Random* random) const;

  bool Covers(size_t bytes) const;

 private:
  std::map<size_t, std::vector<Timing>> sizes_;
};

// The middle one, or the mean of the two in the middle. `timings` is not empty.
double MedianTime(const std::vector<Timing>& timings);

// On the straight line through both points in log-log, at `bytes` between them.
double Between(size_t bytes, size_t low_bytes, double low, size_t high_bytes, double high);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_SERIES_H_
