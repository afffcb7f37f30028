// SPDX-License-Identifier: Apache-2.0
//
// The order in which the steps of a request run.
#ifndef NCCLTUNE_BENCH_SCHEDULE_H_
#define NCCLTUNE_BENCH_SCHEDULE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bench/request.h"
#include "bench/step.h"

namespace nccltune::bench {

// Returns all steps of one round in random order, without sequence numbers. A round times each size
// once with each choice, and `default_repeats` times with NCCL's default. With `by_size`, the sizes
// keep their order. The request's seed and the round number determine the order.
std::vector<Step> StepsOfRound(const BenchRequest& request, int round);

// Picks the number of iterations if the request does not state it. The number is picked once for
// each pair of size and choice, so that all timings of the pair are comparable.
class Iterations {
 public:
  static constexpr int kMin = 2;
  static constexpr int kMax = 10'000;

  explicit Iterations(double target_ms) : target_us_(target_ms * 1e3) {}

  // Returns the number of iterations, or nullopt if it is not known yet. In that case, run the step
  // that Trial returns.
  std::optional<int> For(const Step& step) const;
  // Returns a short, unchecked step of the same call. Run this step and pass the time of one
  // iteration to SetTrialTime.
  static Step Trial(Step step);
  void SetTrialTime(const Step& step, double time_us);

 private:
  using Key = std::pair<size_t, Choice>;
  struct Less {
    bool operator()(const Key& a, const Key& b) const;
  };

  double target_us_;
  std::map<Key, int, Less> picked_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_SCHEDULE_H_
