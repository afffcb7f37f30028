// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/recording.h"

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
namespace {

template <typename T>
bool Fits(const std::optional<T>& recorded, T asked, int* known) {
  if (!recorded) return true;
  ++*known;
  return *recorded == asked;
}

// Returns whether the calls were grouped in the same way. Imported calls with several pipe ops were
// grouped in an unknown way and are no plain calls.
bool IsGroupOf(const CallKind& kind, int group_calls) {
  return kind.group_calls == group_calls && (group_calls > 1 || kind.pipe_ops == 1);
}

// Returns the number of known properties of the series that match the step, or -1 if a property
// contradicts the step.
int Fitness(const CallKind& kind, const Step& step, const Choice& choice) {
  int known = 0;
  const bool fits = kind.collective == step.collective && kind.choice == choice &&
                    kind.in_place == step.in_place && kind.registered == step.registered &&
                    kind.graph == step.graph && IsGroupOf(kind, step.group_calls) &&
                    Fits(kind.dtype, step.dtype, &known) &&
                    (!Reduces(step.collective) || Fits(kind.redop, step.redop, &known)) &&
                    (!HasRoot(step.collective) || Fits(kind.root, step.root, &known));
  return fits ? known : -1;
}

}  // namespace

const Series* Recording::Find(const Step& step, const Choice& choice) const {
  const Series* best = nullptr;
  int best_fitness = -1;
  for (const auto& [kind, series] : series_) {
    const int fitness = Fitness(kind, step, choice);
    if (fitness > best_fitness && series.Covers(step.bytes)) {
      best = &series;
      best_fitness = fitness;
    }
  }
  return best;
}

std::optional<int> Recording::FindPipeOps(bool registered, int group_calls) const {
  if (!registered && group_calls == 1) return 1;
  for (const auto& [kind, series] : series_) {
    if (kind.registered == registered && IsGroupOf(kind, group_calls)) return kind.pipe_ops;
  }
  return std::nullopt;
}

std::optional<Costs> Recording::FindCosts(Collective collective, size_t bytes) const {
  const auto above = tables_.lower_bound({collective, bytes});
  if (above == tables_.end() || above->first.first != collective) return std::nullopt;
  if (above->first.second == bytes) return above->second;
  if (above == tables_.begin()) return std::nullopt;
  const auto below = std::prev(above);
  if (below->first.first != collective) return std::nullopt;
  Costs costs;
  for (const auto& [combination, low] : below->second) {
    const auto high = std::find_if(
        above->second.begin(), above->second.end(),
        [&combination = combination](const auto& entry) { return entry.first == combination; });
    if (high == above->second.end()) continue;
    costs.emplace_back(combination,
                       Between(bytes, below->first.second, low, above->first.second, high->second));
  }
  return costs;
}

}  // namespace nccltune::bench
