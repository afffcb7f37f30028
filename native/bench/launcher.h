// SPDX-License-Identifier: Apache-2.0
//
// Which process of a run this is, as whoever started it says.
#ifndef NCCLTUNE_BENCH_LAUNCHER_H_
#define NCCLTUNE_BENCH_LAUNCHER_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bench/endpoint.h"
#include "bench/world.h"
#include "common/vocabulary.h"

namespace nccltune::bench {

// The value of an environment variable, null where it is not set.
using Environment = std::function<const char*(const char* name)>;

// "openmpi", "hydra", "slurm", "torchrun", "none": what --launcher takes.
Words LauncherNames();

// What the command line says about it; what is absent comes from the launcher's variables.
struct WorldFlags {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<int> local_rank;
  std::string_view launcher;  // one of LauncherNames; empty: whichever is there
  int gpus_per_process = 1;
  int emulate_nodes = 0;
};

// Without flags and launcher: one process. False and *error, with *hint, if they contradict each
// other or themselves.
bool FindWorld(const WorldFlags& flags, const Environment& environment, World* world,
               std::string* error, std::string* hint);

// Where MASTER_ADDR and MASTER_PORT say that the processes meet. Nothing if they are not set; false
// and *error if they say nothing of use.
bool FindMaster(const Environment& environment, std::optional<Endpoint>* endpoint,
                std::string* error);

// The node of this process among the emulated ones.
int EmulatedNode(const World& world);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_LAUNCHER_H_
