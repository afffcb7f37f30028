// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/agreement.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <map>

#include "bench/archive.h"
#include "common/content_hash.h"
#include "common/nccl_version.h"
#include "common/text.h"

namespace nccltune::bench {

// This function is not in an unnamed namespace, because argument-dependent lookup from archive.h
// must find it.
template <typename Archive>
static void Describe(Archive& archive, Introduction& introduction) {
  archive(introduction.error, introduction.nccl_version, introduction.host_hash,
          introduction.gpu_ids, introduction.compute_capability);
}

StepError RunEndedError() { return {ErrorKind::kDied, "the run is ending", -1, true}; }

bool Introduce(ProcessExchange* exchange, const Introduction& mine,
               std::vector<Introduction>* all) {
  Writer writer;
  writer(mine);
  std::vector<std::string> parts;
  if (!exchange->AllGather(writer.Take(), &parts)) return false;
  all->resize(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    Reader reader(parts[i]);
    reader((*all)[i]);
    if (!reader.Finished()) return false;
  }
  return true;
}

namespace {

// Since this NCCL version, ranks of one node may share a GPU.
constexpr NcclVersion kSharesGpus = {2, 31, 0};

// The use of one GPU by the ranks seen so far: the first rank, the number of ranks, and the node of
// the last rank.
struct GpuUse {
  int first = 0;
  int ranks = 0;
  int node = -1;
};

OpenError TooManyRanks(const GpuUse& use, int rank, const World& world) {
  if (world.ranks_per_gpu == 1) {
    return {OpenError::Kind::kBadInput,
            "ranks " + std::to_string(use.first) + " and " + std::to_string(rank) +
                " are on the same GPU",
            "start no more ranks on a host than it has GPUs, and give each process its local rank "
            "or a CUDA_VISIBLE_DEVICES of its own; --ranks-per-gpu shares a GPU",
            rank};
  }
  return {OpenError::Kind::kBadInput,
          "rank " + std::to_string(rank) + " would be one too many on the GPU of rank " +
              std::to_string(use.first) + ": --ranks-per-gpu is " +
              std::to_string(world.ranks_per_gpu),
          "start as many processes as GPUs times --ranks-per-gpu", rank};
}

}  // namespace

std::optional<OpenError> FindOpenError(const std::vector<Introduction>& all, const World& world) {
  for (const Introduction& one : all) {
    if (one.error) return one.error;
  }
  std::map<std::string, GpuUse> uses;
  int rank = 0;
  int process = -1;
  for (const Introduction& one : all) {
    ++process;
    if (one.nccl_version != all.front().nccl_version) {
      return OpenError{OpenError::Kind::kBadInput,
                       "rank 0 has NCCL " + all.front().nccl_version + " and rank " +
                           std::to_string(rank) + " NCCL " + one.nccl_version,
                       "pass the same library to all processes with --nccl PATH", rank};
    }
    for (const std::string& id : one.gpu_ids) {
      GpuUse& use = uses.emplace(id, GpuUse{.first = rank}).first->second;
      if (++use.ranks > world.ranks_per_gpu) return TooManyRanks(use, rank, world);
      const int node = world.NodeOf(process);
      const auto version = ParseNcclVersion(one.nccl_version);
      if (use.node == node && (!version || *version < kSharesGpus)) {
        return OpenError{OpenError::Kind::kBadInput,
                         "NCCL " + one.nccl_version + " does not let ranks of one node share a GPU",
                         "make each rank a node (leave out --emulate-nodes), or use NCCL 2.31 or "
                         "newer",
                         rank};
      }
      use.node = node;
      ++rank;
    }
  }
  return std::nullopt;
}

std::optional<StepError> ShareFirstError(ProcessExchange* exchange,
                                         const std::optional<StepError>& mine) {
  std::string bytes;
  if (mine) {
    Writer writer;
    writer(*mine);
    bytes = writer.Take();
  }
  std::vector<std::string> all;
  if (!exchange->AllGather(bytes, &all)) return RunEndedError();
  for (const std::string& part : all) {
    if (part.empty()) continue;
    StepError error;
    Reader reader(part);
    reader(error);
    return reader.Finished() ? error : RunEndedError();
  }
  return std::nullopt;
}

std::string HostHash() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return Hex64(ContentHash(std::string(name.data()) + boot));
}

}  // namespace nccltune::bench
