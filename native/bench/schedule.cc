// SPDX-License-Identifier: Apache-2.0
#include "bench/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "bench/random.h"

namespace nccltune::bench {
namespace {

// Mixed into the seed for the order of the steps. So the order is independent of the timings that a
// replay draws for the same round.
constexpr std::string_view kOrderSeed = "order";

void AddSize(const BenchRequest& request, size_t bytes, std::vector<Step>* steps) {
  for (const Choice& choice : request.choices) {
    const bool is_default = choice.kind == Choice::Kind::kDefault;
    for (int repeat = 0; repeat < (is_default ? request.default_repeats : 1); ++repeat) {
      Step step = request.step;
      step.bytes = bytes;
      step.choice = choice;
      steps->push_back(step);
    }
  }
}

auto Ordered(const Choice& choice) {
  return std::tuple(choice.kind, choice.combination.algorithm, choice.combination.protocol,
                    choice.channels, choice.chunk_bytes);
}

}  // namespace

std::vector<Step> StepsOfRound(const BenchRequest& request, int round) {
  Random random(MixSeed(MixSeed(request.step.seed, kOrderSeed),
                        static_cast<uint64_t>(static_cast<int64_t>(round))));
  std::vector<Step> steps;
  for (const size_t bytes : request.bytes) {
    if (request.by_size) {
      std::vector<Step> of_size;
      AddSize(request, bytes, &of_size);
      Shuffle(&random, &of_size);
      steps.insert(steps.end(), of_size.begin(), of_size.end());
    } else {
      AddSize(request, bytes, &steps);
    }
  }
  if (!request.by_size) Shuffle(&random, &steps);
  std::map<size_t, int> defaults;  // number of default steps so far, by size
  for (Step& step : steps) {
    step.round = round;
    if (step.choice.kind == Choice::Kind::kDefault) step.repeat = defaults[step.bytes]++;
  }
  return steps;
}

bool Iterations::Less::operator()(const Key& a, const Key& b) const {
  return std::pair(a.first, Ordered(a.second)) < std::pair(b.first, Ordered(b.second));
}

std::optional<int> Iterations::For(const Step& step) const {
  if (step.iterations > 0) return step.iterations;
  const auto found = picked_.find({step.bytes, step.choice});
  if (found == picked_.end()) return std::nullopt;
  return found->second;
}

Step Iterations::Trial(Step step) {
  step.warmup = std::max(step.warmup, 1);
  step.iterations = kMin;
  step.check = false;
  return step;
}

void Iterations::SetTrialTime(const Step& step, double time_us) {
  const double wanted = time_us > 0 ? std::ceil(target_us_ / time_us) : kMax;
  picked_[{step.bytes, step.choice}] =
      static_cast<int>(std::clamp(wanted, double{kMin}, double{kMax}));
}

}  // namespace nccltune::bench
