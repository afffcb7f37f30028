// SPDX-License-Identifier: Apache-2.0
// Runs steps from a recording. replay_open.cc opens the backend.
#include "bench/replay/replay_backend.h"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/error_words.h"
#include "bench/random.h"
#include "bench/request.h"
#include "common/json.h"

namespace nccltune::bench {
namespace {

// Returns the seed of the timing, which depends on every property of the step and on nothing else.
// So a repeated request gives the same timings. A request that is continued after an interruption
// gives the timings that an uninterrupted request would give.
uint64_t SeedOf(const Step& step, const Choice& running) {
  uint64_t seed = MixSeed(step.seed, std::string_view("timing"));
  for (const uint64_t part :
       {static_cast<uint64_t>(step.collective), uint64_t{step.bytes},
        static_cast<uint64_t>(step.dtype), static_cast<uint64_t>(step.redop),
        static_cast<uint64_t>(step.root), uint64_t{step.in_place}, uint64_t{step.registered},
        uint64_t{step.graph}, static_cast<uint64_t>(step.round),
        static_cast<uint64_t>(step.repeat)}) {
    seed = MixSeed(seed, part);
  }
  if (step.group_calls > 1) seed = MixSeed(seed, static_cast<uint64_t>(step.group_calls));
  // Default, tuned and forced timings of a round are independent draws, even if the same choice
  // runs.
  return MixSeed(MixSeed(seed, json::Write(ToJson(step.choice))), json::Write(ToJson(running)));
}

}  // namespace

RankRange RanksOf(const World& world, int ranks) {
  const auto begin = [&](int process) {
    return static_cast<int>(int64_t{process} * ranks / world.processes);
  };
  return {begin(world.process), begin(world.process + 1)};
}

StepResult ReplayBackend::Run(const Step& step) {
  StepResult result;
  const Running running = Decide(step);
  result.applied = running.applied;
  result.error = running.error;
  // Take part in the exchange even after an error, because the other processes wait for this
  // process.
  if (auto disagreement = Disagreement(step, running.choice)) result.error = disagreement;
  if (result.error) return result;
  const Series* series = recording_->Find(step, running.choice);
  Random random(SeedOf(step, running.choice));
  const std::optional<Timing> timing =
      series == nullptr ? std::nullopt : series->Draw(step.bytes, &random);
  if (!timing) {
    result.error =
        StepError{ErrorKind::kUnsupported, "the recording does not hold this call with " +
                                               InWords(running.choice) + " around " +
                                               std::to_string(step.bytes) + " bytes"};
    return result;
  }
  result.ran = timing->ran;
  result.seen = SeenBy(step);
  if (running.choice.kind == Choice::Kind::kForced) {
    ExecutedChoice ran{running.choice.combination, std::nullopt, std::nullopt};
    if (running.choice.channels > 0) ran.channels = running.choice.channels;
    if (running.choice.chunk_bytes > 0) ran.chunk_bytes = running.choice.chunk_bytes;
    if (!ran.channels && timing->ran) ran.channels = timing->ran->channels;
    result.ran = ran;
  }
  const RankRange share = RanksOf(world_, recording_->scale().ranks);
  for (int rank = share.first; rank < share.end; ++rank) {
    RankTiming of_rank{rank, timing->time_us, std::nullopt, std::nullopt};
    if (step.check && timing->checked) of_rank.wrong = 0;
    result.timings.push_back(of_rank);
  }
  Wait(options_.pace * timing->time_us * (step.warmup + step.iterations));
  return result;
}

TunerInputs ReplayBackend::SeenBy(const Step& step) const {
  return {recording_->FindPipeOps(step.registered, step.group_calls).value_or(1), step.registered};
}

ReplayBackend::Running ReplayBackend::Decide(const Step& step) {
  Running running;
  if (!IsTuned(step.collective)) return running;
  if (!control_->Apply(step.collective, step.choice)) {
    running.error = StepError{ErrorKind::kUnsupported, "the tuner plugin refuses that choice"};
    return running;
  }
  host::DecisionRequest request;
  request.collective = static_cast<abi::TunedCollective>(step.collective);
  request.bytes = step.bytes;
  request.pipe_ops = recording_->FindPipeOps(step.registered, step.group_calls).value_or(1);
  request.registered = step.registered;
  request.costs = std::vector<std::pair<host::Combination, float>>();
  if (const std::optional<Costs> costs = recording_->FindCosts(step.collective, step.bytes)) {
    for (const auto& [combination, cost] : *costs) {
      request.costs->emplace_back(combination, static_cast<float>(cost));
    }
  } else if (const auto known = recording_->combinations().find(step.collective);
             known != recording_->combinations().end()) {
    for (const host::Combination& combination : known->second) {
      request.costs->emplace_back(combination, host::kNominalCostUs);
    }
  } else {
    request.costs.reset();
  }
  const host::Decision decision = host_->Decide(request);
  if (decision.failure) {
    running.error = StepError{ErrorKind::kNccl, decision.failure->text, -1, true};
    return running;
  }
  if (decision.outcome == host::DecisionResult::kChosen) {
    running.choice.kind = Choice::Kind::kForced;
    running.choice.combination = decision.choice.combination;
    running.choice.channels = decision.choice.channels.value_or(-1);
    // The recording stores timings under the requested chunk size, so search for that size. NCCL
    // may run a rounded size.
    if (decision.choice.chunk_bytes) running.choice.chunk_bytes = step.choice.chunk_bytes;
  }
  if (step.choice.kind == Choice::Kind::kForced) running.applied = running.choice == step.choice;
  return running;
}

std::optional<StepError> ReplayBackend::Disagreement(const Step& step, const Choice& choice) {
  std::vector<std::string> all;
  if (!exchange_->AllGather(InWords(choice), &all)) {
    return StepError{ErrorKind::kDied, "interrupted", -1, true};
  }
  for (size_t process = 1; process < all.size(); ++process) {
    if (all[process] == all[0]) continue;
    return StepError{ErrorKind::kTimeout,
                     std::string(AllCollectiveNames()[static_cast<size_t>(step.collective)]) +
                         " of " + std::to_string(step.bytes) + " bytes is stuck: process 0 runs " +
                         all[0] + ", process " + std::to_string(process) + " " + all[process] +
                         " (do all have the same rules?)",
                     RanksOf({.process = static_cast<int>(process), .processes = world_.processes},
                             recording_->scale().ranks)
                         .first,
                     true};
  }
  return std::nullopt;
}

TableResult ReplayBackend::Table(const Step& step) {
  TableResult result;
  if (!recording_->FindPipeOps(step.registered, step.group_calls)) {
    std::string what = "the recording holds no ";
    what +=
        step.group_calls > 1 ? "groups of " + std::to_string(step.group_calls) + " calls" : "calls";
    if (step.registered) what += " with registered buffers";
    result.error = StepError{ErrorKind::kUnsupported, what};
    return result;
  }
  result.row.seen = SeenBy(step);
  if (const std::optional<Costs> costs = recording_->FindCosts(step.collective, step.bytes)) {
    host::CostTable offered(host_->rules().algorithms);
    for (const auto& [combination, cost] : *costs) {
      if (combination.algorithm >= offered.algorithms) continue;
      offered.at(combination) = static_cast<float>(cost);
      result.row.costs.emplace_back(combination, cost);
    }
    result.row.predicted = host::Pick(host_->rules(), offered, offered);
    return result;
  }
  if (const auto known = recording_->combinations().find(step.collective);
      known != recording_->combinations().end()) {
    for (const host::Combination& combination : known->second) {
      result.row.costs.emplace_back(combination, std::nullopt);
    }
    return result;
  }
  const host::CostTable nominal =
      host::NominalTable(host_->rules(), static_cast<int>(step.collective), platform_);
  host::ForEachEntry(nominal, [&](host::Combination combination) {
    if (nominal.at(combination) == abi::kIgnore) return;
    result.row.costs.emplace_back(combination, std::nullopt);
  });
  return result;
}

void ReplayBackend::Close() {
  host_.reset();
  control_.reset();
}

void ReplayBackend::Abort() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  aborting_.notify_all();
}

void ReplayBackend::Wait(double microseconds) {
  if (!(microseconds > 0)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  aborting_.wait_for(lock, std::chrono::duration<double, std::micro>(microseconds),
                     [this] { return aborted_; });
}

}  // namespace nccltune::bench
