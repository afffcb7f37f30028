// SPDX-License-Identifier: Apache-2.0
// Opens a recording, and runs steps from it.
#include "bench/replay/replay_backend.h"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include <set>
#include "bench/random.h"
#include "bench/request.h"
#include "bench/step.h"
#include "common/json.h"
#include "common/text.h"

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

std::optional<OpenError> ReplayBackend::Open(const World& world, ProcessExchange* exchange,
                                             BackendInfo* info) {
  world_ = world;
  exchange_ = exchange;
  std::optional<OpenError> error = OpenAlone(world, info);
  // Every process takes part in the exchange, even after an error. Otherwise the other processes
  // would wait for it.
  std::vector<std::string> hashes;
  if (!exchange->AllGather(error ? "" : Hex64(recording_->content_hash()), &hashes)) {
    return OpenError{OpenError::Kind::kFailed, "interrupted", "", -1};
  }
  for (size_t process = 0; process < hashes.size() && !error; ++process) {
    if (hashes[process].empty() || hashes[process] == hashes[0]) continue;
    error = OpenError{
        OpenError::Kind::kBadInput,
        "process " + std::to_string(process) + " replays another recording than process 0",
        "give all of them the same study", -1};
  }
  return error;
}

std::optional<OpenError> ReplayBackend::OpenAlone(const World& world, BackendInfo* info) {
  const auto bad = [](std::string text, std::string hint) {
    return OpenError{OpenError::Kind::kBadInput, std::move(text), std::move(hint), -1};
  };
  std::string error;
  std::string hint;
  recording_ = Recording::Open(options_.study, options_.scale, &error, &hint);
  if (recording_ == nullptr) return bad(error, hint);
  if (auto problem = CheckWorld(world)) return problem;
  host::HostOptions host_options;
  host_options.tuner = options_.tuner_path;
  const std::optional<NcclVersion> version =
      options_.nccl_version ? options_.nccl_version : recording_->nccl_version();
  if (!version) {
    return bad(options_.study + " does not state its NCCL version", "pass it with --nccl-version");
  }
  host_options.nccl = *version;
  const RecordedScale scale = recording_->scale();
  platform_.nodes = scale.nodes;
  platform_.ranks = scale.ranks;
  platform_.min_ranks_per_node = scale.ranks / scale.nodes;
  platform_.max_ranks_per_node = (scale.ranks + scale.nodes - 1) / scale.nodes;
  platform_.nvls = recording_->nvls();
  platform_.collnet = false;
  host_options.platform = platform_;
  control_ = TunerControl::Open(options_.tuner_path, &error);
  host::InitReport report;
  host::Failure failure;
  if (control_ != nullptr) {
    host_ = host::TunerHost::Start(host_options, &report, &failure);
    error = failure.text;
  }
  if (host_ == nullptr) {
    return OpenError{OpenError::Kind::kCannotRun, options_.tuner_path + ": " + error,
                     "pass nccltune's plugin, libnccl-tuner-nccltune.so, with --tuner", -1};
  }
  info->nccl_version = ToString(*version);
  Describe(world, report, info);
  return std::nullopt;
}

std::optional<OpenError> ReplayBackend::CheckWorld(const World& world) const {
  const RecordedScale scale = recording_->scale();
  const auto bad = [](std::string text, std::string hint) {
    return OpenError{OpenError::Kind::kBadInput, std::move(text), std::move(hint), -1};
  };
  const std::string recorded = options_.study + " was recorded on " + std::to_string(scale.nodes) +
                               (scale.nodes == 1 ? " node, " : " nodes, ") +
                               std::to_string(scale.ranks) + " ranks";
  if (scale.ranks < 2) {
    return bad(recorded + ": with one rank there is nothing to choose", "replay another study");
  }
  if (scale.nodes > scale.ranks) {
    return bad(recorded + ", which is impossible", "platform.json or the samples are wrong");
  }
  if (world.processes > scale.ranks ||
      (world.gpus_per_process > 1 && world.ranks() != scale.ranks)) {
    return bad(recorded + "; " + std::to_string(world.processes) + " processes with " +
                   std::to_string(world.gpus_per_process) + " GPUs each do not fit",
               "start at most one process for each recorded rank, without --gpus-per-process");
  }
  if (world.emulated_nodes > 0 && world.emulated_nodes != scale.nodes) {
    return bad(recorded + ", not on " + std::to_string(world.emulated_nodes) + " nodes",
               "leave --emulate-nodes out");
  }
  return std::nullopt;
}

void ReplayBackend::Describe(const World& world, const host::InitReport& report,
                             BackendInfo* info) const {
  info->backend = "replay";
  info->replay = recording_->name();
  info->nccl_from = "recording";
  info->tuner_path = options_.tuner_path;
  info->tuner_control = control_->version();
  info->tuner_interface = report.interface;
  info->nodes = recording_->scale().nodes;
  info->ranks = recording_->scale().ranks;
  const RankRange share = RanksOf(world, info->ranks);
  for (int rank = share.first; rank < share.end; ++rank) {
    info->gpus.push_back({rank, recording_->gpu(), ""});
  }
  std::set<Collective> collectives;
  std::set<Dtype> dtypes;
  std::set<Redop> redops;
  bool any_dtype = false;
  bool any_redop = false;
  for (const auto& [kind, series] : recording_->series()) {
    collectives.insert(kind.collective);
    any_dtype = any_dtype || !kind.dtype;
    any_redop = any_redop || (Reduces(kind.collective) && !kind.redop);
    if (kind.dtype) dtypes.insert(*kind.dtype);
    if (kind.redop) redops.insert(*kind.redop);
    info->registered = info->registered || kind.registered;
    info->graph = info->graph || kind.graph;
    info->group_calls = info->group_calls || kind.group_calls > 1;
    info->chunk = info->chunk || (kind.choice.chunk_bytes > 0 && report.has_chunk_size);
  }
  info->collectives.assign(collectives.begin(), collectives.end());
  info->dtypes.assign(dtypes.begin(), dtypes.end());
  info->redops.assign(redops.begin(), redops.end());
  if (any_dtype) info->dtypes = AllOf<Dtype>(DtypeNames());
  if (any_redop) info->redops = AllOf<Redop>(RedopNames());
}

}  // namespace nccltune::bench
