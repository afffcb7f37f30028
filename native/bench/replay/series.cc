// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/series.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace nccltune::bench {
namespace {

const Timing& AnyOf(const std::vector<Timing>& timings, Random* random) {
  return timings[random->Below(timings.size())];
}

}  // namespace

double MedianTime(const std::vector<Timing>& timings) {
  std::vector<double> times;
  times.reserve(timings.size());
  for (const Timing& timing : timings) times.push_back(timing.time_us);
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

double Between(size_t bytes, size_t low_bytes, double low, size_t high_bytes, double high) {
  const double from = std::log(static_cast<double>(low_bytes));
  const double to = std::log(static_cast<double>(high_bytes));
  const double share = (std::log(static_cast<double>(bytes)) - from) / (to - from);
  return std::exp(std::log(low) + share * (std::log(high) - std::log(low)));
}

bool Series::Covers(size_t bytes) const {
  return !sizes_.empty() && sizes_.begin()->first <= bytes && bytes <= sizes_.rbegin()->first;
}

std::optional<Timing> Series::Draw(size_t bytes, Random* random) const {
  if (!Covers(bytes)) return std::nullopt;
  const auto above = sizes_.lower_bound(bytes);
  if (above->first == bytes) return AnyOf(above->second, random);
  const auto below = std::prev(above);
  const double below_median = MedianTime(below->second);
  const double above_median = MedianTime(above->second);
  const double median = Between(bytes, below->first, below_median, above->first, above_median);
  // Compares distances on the logarithmic scale: bytes / below < above / bytes.
  const bool below_is_nearer =
      static_cast<double>(bytes) * static_cast<double>(bytes) <
      static_cast<double>(below->first) * static_cast<double>(above->first);
  const auto& nearer = below_is_nearer ? below->second : above->second;
  Timing timing = AnyOf(nearer, random);
  timing.time_us *= median / (below_is_nearer ? below_median : above_median);
  return timing;
}

}  // namespace nccltune::bench
