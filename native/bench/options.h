// SPDX-License-Identifier: Apache-2.0
// The command line of nccltune-bench.
#ifndef NCCLTUNE_BENCH_OPTIONS_H_
#define NCCLTUNE_BENCH_OPTIONS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/launcher.h"
#include "bench/rendezvous.h"
#include "common/nccl_version.h"

namespace nccltune::bench {

struct BenchOptions {
  WorldFlags world;
  std::optional<Endpoint> rendezvous;
  std::chrono::milliseconds start_limit{std::chrono::minutes(2)};
  std::string nccl;    // a path; empty: search for it
  std::string tuner;   // a path; empty: the plugin installed with this program
  std::string replay;  // path of a study; empty: no replay
  std::optional<NcclVersion> nccl_version;
  std::optional<std::pair<int, int>> scale;  // nodes, ranks
  double pace = 0;
  bool version = false;
  bool help = false;
};

// Parses the command line. Returns false with *error if an argument is unknown or invalid, or if
// arguments contradict each other. The defaults remain for arguments that are not given.
bool ParseOptions(const std::vector<std::string_view>& arguments, BenchOptions* options,
                  std::string* error);

std::string_view HelpText();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_OPTIONS_H_
