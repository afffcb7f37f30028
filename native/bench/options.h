// SPDX-License-Identifier: Apache-2.0
// The command line of nccltune-bench.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "bench/rendezvous.h"
#include "common/vocabulary.h"

namespace nccltune::bench {

// Finds out which process of the run this is, from flags or from the launcher's environment
// variables.

// Returns the value of an environment variable, or null if it is not set.
using Environment = std::function<const char*(const char* name)>;

// The values of --launcher: "openmpi", "hydra", "slurm", "torchrun", "none".
Words LauncherNames();

// The command-line flags. The launcher's variables replace an absent rank, size or local rank.
struct WorldFlags {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<int> local_rank;
  std::string_view launcher;  // one of LauncherNames; empty: detect it
  int gpus_per_process = 1;
  int emulate_nodes = 0;  // 0: not given
  int ranks_per_gpu = 1;
};

// Fills *world. Without flags and without a launcher, the run has a single process. Returns false,
// with *error and *hint, if the flags or variables are invalid, incomplete or contradict each
// other.
bool FindWorld(const WorldFlags& flags, const Environment& environment, World* world,
               std::string* error, std::string* hint);

// Reads the rendezvous address from MASTER_ADDR and MASTER_PORT. *endpoint stays empty if one of
// these variables is not set. Returns false with *error if they are invalid.
bool FindMaster(const Environment& environment, std::optional<Endpoint>* endpoint,
                std::string* error);

struct BenchOptions {
  WorldFlags world;
  std::optional<Endpoint> rendezvous;
  std::chrono::milliseconds start_limit{std::chrono::minutes(2)};
  std::string nccl;   // a path; empty: search for it
  std::string tuner;  // a path; empty: the plugin installed with this program
  bool version = false;
  bool help = false;
};

// Parses the command line. Returns false with *error if an argument is unknown or invalid. The
// defaults remain for arguments that are not given.
bool ParseOptions(const std::vector<std::string_view>& arguments, BenchOptions* options,
                  std::string* error);

std::string_view HelpText();

}  // namespace nccltune::bench
