// SPDX-License-Identifier: Apache-2.0
#include "host/program_options.h"

#include <algorithm>
#include <optional>

#include "common/option_table.h"
#include "common/text.h"

namespace nccltune::host {
namespace {

constexpr int kMaxRanks = 1 << 24;

constexpr std::string_view kHelp =
    R"(nccltune-host: simulates NCCL's side of the tuner interface, without NCCL and without a GPU

usage: nccltune-host --tuner PATH --nccl VERSION --nodes N --ranks R [options]
       nccltune-host --list-symbols --tuner PATH

The first line of standard output reports how the plugin was loaded. Then each line of JSON on
standard input gets one line of JSON on standard output as its answer. Environment variables such as
NCCL_TUNER_CONFIG_FILE reach the plugin unchanged; what it prints goes to standard error.

  --tuner PATH               the plugin, a shared object
  --nccl VERSION             the NCCL version to simulate, 2.21 or later: 2.28.9
  --nodes N --ranks R        the communicator; 2 ranks or more
  --min-ranks-per-node A     fewest ranks on a node      (default: R / N, rounded down)
  --max-ranks-per-node B     most ranks on a node        (default: R / N, rounded up)
  --channels C               channels of the communicator (default: unknown)
  --without nvls,collnet,ll128   features the platform lacks; for requests without `costs`
  --list-symbols             print the interface versions that the plugin exports, and exit
  --verbose                  also print the plugin's log lines to standard error
  --help

Exit status: 0 ok, 2 usage, 3 the plugin cannot be loaded or exports no interface that this NCCL
uses, 4 the plugin's init failed.
)";

std::string ReadNccl(std::string_view value, NcclVersion* nccl) {
  const std::optional<NcclVersion> version = ParseNcclVersion(value);
  if (!version) return Quoted(value) + " is no version like 2.28.9";
  if (*version < NcclVersion{2, 21, 0}) {
    return "NCCL before 2.21 took plugins of interface v1 only";
  }
  *nccl = *version;
  return {};
}

std::string ReadWithout(std::string_view text, Platform* platform) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    bool* const has = word == "nvls"      ? &platform->nvls
                      : word == "collnet" ? &platform->collnet
                      : word == "ll128"   ? &platform->ll128
                                          : nullptr;
    if (has == nullptr) return Quoted(word) + " is none of nvls, collnet, ll128";
    *has = false;
  }
  return {};
}

// Sets defaults that depend on other options. Returns an error text if an option is missing or
// options contradict each other, else an empty text.
std::string Complete(ProgramOptions* options) {
  if (options->host.tuner.empty()) return "--tuner is missing";
  if (options->list_symbols) return {};
  Platform& platform = options->host.platform;
  if (options->host.nccl.major == 0) return "--nccl is missing";
  if (platform.nodes == 0 || platform.ranks == 0) return "--nodes and --ranks are needed";
  if (platform.ranks < 2) return "--ranks: with one rank NCCL asks no tuner";
  if (platform.nodes > platform.ranks) return "--nodes: there are fewer ranks than nodes";
  const int least = platform.ranks / platform.nodes;
  const int most = (platform.ranks + platform.nodes - 1) / platform.nodes;
  if (platform.min_ranks_per_node == 0) platform.min_ranks_per_node = least;
  if (platform.max_ranks_per_node == 0) platform.max_ranks_per_node = most;
  if (platform.min_ranks_per_node > least || platform.max_ranks_per_node < most ||
      platform.max_ranks_per_node > platform.ranks) {
    return "ranks per node contradict --nodes and --ranks";
  }
  return {};
}

}  // namespace

bool ParseProgramOptions(const std::vector<std::string_view>& arguments, ProgramOptions* options,
                         std::string* error) {
  *options = ProgramOptions();
  HostOptions& host = options->host;
  Platform& platform = host.platform;
  platform.nodes = platform.ranks = 0;
  platform.min_ranks_per_node = platform.max_ranks_per_node = 0;
  OptionTable table;
  table.Flag("--help", &options->help);
  table.Flag("--list-symbols", &options->list_symbols);
  table.Flag("--verbose", &options->verbose);
  table.Path("--tuner", &host.tuner);
  table.Value("--nccl", [&](std::string_view value) { return ReadNccl(value, &host.nccl); });
  table.Number("--nodes", 1, kMaxRanks, &platform.nodes);
  table.Number("--ranks", 1, kMaxRanks, &platform.ranks);
  table.Number("--min-ranks-per-node", 1, kMaxRanks, &platform.min_ranks_per_node);
  table.Number("--max-ranks-per-node", 1, kMaxRanks, &platform.max_ranks_per_node);
  table.Number("--channels", 1, kMaxRanks, &host.channels);
  table.Value("--without", [&](std::string_view value) { return ReadWithout(value, &platform); });
  if (!table.Parse(arguments, error)) return false;
  if (options->help) return true;
  *error = Complete(options);
  return error->empty();
}

std::string_view HelpText() { return kHelp; }

}  // namespace nccltune::host
