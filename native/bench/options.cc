// SPDX-License-Identifier: Apache-2.0
#include "bench/options.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/option_table.h"
#include "common/text.h"

namespace nccltune::bench {
namespace {

constexpr int kMaxProcesses = 1 << 20;
constexpr int kMaxGpus = 64;
constexpr int kMaxRanksPerGpu = 48;  // an MPS server accepts at most 48 clients
constexpr double kLongestStart = 86'400;
constexpr double kSlowestPace = 1000;

constexpr std::string_view kHelp =
    R"(nccltune-bench: times NCCL collectives and switches the choice between calls

usage: nccltune-bench [options]                  one process
       mpirun -n N nccltune-bench [options]      or srun, torchrun: one process for each GPU

Rank 0 answers each line of JSON on standard input with lines of JSON on standard output; all other
output goes to standard error. docs/reference/bench.md lists requests and answers.

Identity of this process (default: the variables of Open MPI, hydra, torchrun or Slurm)
  --rank R --size N          index of this process, from 0, and the number of processes
  --local-rank L             index of this process on its host; its first GPU is L times
                             --gpus-per-process (default with --rank: R)
  --gpus-per-process G       number of GPUs, which are ranks, of each process (default: 1)
  --launcher NAME            whose variables to use: openmpi, hydra, slurm, torchrun, none
  --emulate-nodes N          treat one host as N nodes (sets NCCL_HOSTID and NCCL_SOCKET_IFNAME)
  --ranks-per-gpu N          let N processes of a host share a GPU; each is an emulated node unless
                             --emulate-nodes is given. Ranks of one node can share a GPU since NCCL
                             2.31, with NCCL_MULTI_RANK_GPU_ENABLE=1

Rendezvous (with more than one process)
  --rendezvous HOST:PORT     where process 0 listens (default: MASTER_ADDR and MASTER_PORT)
  NCCLTUNE_TOKEN             environment variable: 32 hexadecimal digits, the same for all
  --start-timeout S          seconds for the rendezvous, and for the communicator (default: 120)

Libraries and recordings
  --nccl PATH                libnccl.so.2 (default: PyTorch's, else the system's)
  --tuner PATH               nccltune's tuner plugin (default: the one installed with this program)
  --replay STUDY             draw the timings from a recorded study; needs no GPU
  --nccl-version V           with --replay: the NCCL version to simulate (default: the recorded one)
  --scale NODES/RANKS        with --replay: the scale, if several are recorded
  --pace F                   with --replay: steps take F times the recorded time (default: 0)

  --version
  --help

Exit status: 0 ok, 2 bad arguments, 3 no GPU, no library or NCCL too old, 4 a rank died, a
collective hung or NCCL failed, 128 + n ended by signal n.
)";

std::string ReadScale(std::string_view value, std::optional<std::pair<int, int>>* scale) {
  const size_t slash = std::min(value.find('/'), value.size());
  int nodes = 0;
  int ranks = 0;
  if (slash == value.size() ||
      !ReadNumber(value.substr(0, slash), 1, kMaxProcesses, &nodes).empty() ||
      !ReadNumber(value.substr(slash + 1), 1, kMaxProcesses, &ranks).empty()) {
    return Quoted(value) + " is not of the form NODES/RANKS";
  }
  *scale = std::pair(nodes, ranks);
  return {};
}

OptionTable TableFor(BenchOptions* options) {
  WorldFlags& world = options->world;
  OptionTable table;
  table.Flag("--help", &options->help);
  table.Flag("--version", &options->version);
  table.Number("--rank", 0, kMaxProcesses - 1, &world.rank);
  table.Number("--size", 1, kMaxProcesses, &world.size);
  table.Number("--local-rank", 0, kMaxProcesses, &world.local_rank);
  table.Number("--gpus-per-process", 1, kMaxGpus, &world.gpus_per_process);
  table.Number("--emulate-nodes", 1, kMaxProcesses, &world.emulate_nodes);
  table.Number("--ranks-per-gpu", 1, kMaxRanksPerGpu, &world.ranks_per_gpu);
  table.OneOf("--launcher", LauncherNames(),
              [&world](size_t number) { world.launcher = LauncherNames()[number]; });
  table.Value("--rendezvous", [options](std::string_view value) {
    options->rendezvous = ParseEndpoint(value);
    return options->rendezvous
               ? ""
               : Quoted(value, 100) + " is not of the form HOST:PORT or [ADDRESS]:PORT";
  });
  table.Value("--start-timeout", [options](std::string_view value) {
    double limit_s = 0;
    std::string wrong = ReadNumber(value, 0.0, kLongestStart, &limit_s);
    options->start_limit = std::chrono::milliseconds(static_cast<int64_t>(limit_s * 1000));
    return wrong;
  });
  table.Path("--nccl", &options->nccl);
  table.Path("--tuner", &options->tuner);
  table.Path("--replay", &options->replay);
  table.Value("--nccl-version", [options](std::string_view value) {
    options->nccl_version = ParseNcclVersion(value);
    return options->nccl_version ? "" : Quoted(value) + " is no version like 2.28.9";
  });
  table.Value("--scale",
              [options](std::string_view value) { return ReadScale(value, &options->scale); });
  table.Number("--pace", 0.0, kSlowestPace, &options->pace);
  return table;
}

// Returns an error text if options contradict each other, else an empty text.
std::string Conflict(const BenchOptions& options) {
  const bool replay = !options.replay.empty();
  const std::array<std::pair<bool, const char*>, 3> for_replay = {{
      {options.nccl_version.has_value(), "--nccl-version"},
      {options.scale.has_value(), "--scale"},
      {options.pace > 0, "--pace"},
  }};
  for (const auto& [given, name] : for_replay) {
    if (given && !replay) return std::string(name) + " is for --replay";
  }
  if (replay && !options.nccl.empty()) return "--nccl and --replay exclude each other";
  return {};
}

}  // namespace

bool ParseOptions(const std::vector<std::string_view>& arguments, BenchOptions* options,
                  std::string* error) {
  *options = BenchOptions();
  if (!TableFor(options).Parse(arguments, error)) return false;
  if (options->help || options->version) return true;
  *error = Conflict(*options);
  return error->empty();
}

std::string_view HelpText() { return kHelp; }

}  // namespace nccltune::bench
