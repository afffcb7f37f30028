// SPDX-License-Identifier: Apache-2.0
// Opens the replay backend: reads the study, and loads the tuner plugin in the same way as the
// recorded NCCL version.
#include <set>
#include <utility>

#include "bench/replay/replay_backend.h"
#include "common/text.h"

namespace nccltune::bench {

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
