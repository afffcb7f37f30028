// SPDX-License-Identifier: Apache-2.0
//
// In which order the steps of a request are run.
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

// All steps of one round, without sequence numbers: every size with every choice once, the default
// default_repeats times, in an order that the request's seed and the round decide.
std::vector<Step> StepsOfRound(const Request& request, int round);

// How often the calls of a request are repeated where it leaves that to the bench: picked once for
// each (size, choice), so that all its timings are of one kind.
class Iterations {
 public:
  static constexpr int kLeast = 2;
  static constexpr int kMost = 10'000;

  explicit Iterations(double target_ms) : target_us_(target_ms * 1e3) {}

  // Nothing: not picked yet, run Trial first.
  std::optional<int> For(const Step& step) const;
  // A short, unchecked run of the same call, to learn what it takes.
  static Step Trial(Step step);
  void Learn(const Step& step, double time_us);

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
