// SPDX-License-Identifier: Apache-2.0
#include "bench/options.h"

#include <array>
#include <cstdint>
#include <utility>

#include "common/option_table.h"
#include "common/text.h"

namespace nccltune::bench {
namespace {

constexpr int kMaxProcesses = 1 << 20;
constexpr int kMaxGpus = 64;
constexpr int kMaxRanksPerGpu = 48;  // an MPS server accepts at most 48 clients
constexpr double kLongestStart = 86'400;

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

Libraries
  --nccl PATH                libnccl.so.2 (default: PyTorch's, else the system's)
  --tuner PATH               nccltune's tuner plugin (default: the one installed with this program)

  --version
  --help

Exit status: 0 ok, 2 bad arguments, 3 no GPU, no library or NCCL too old, 4 a rank died, a
collective hung or NCCL failed, 128 + n ended by signal n.
)";

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
  return table;
}

}  // namespace

bool ParseOptions(const std::vector<std::string_view>& arguments, BenchOptions* options,
                  std::string* error) {
  *options = BenchOptions();
  return TableFor(options).Parse(arguments, error);
}

std::string_view HelpText() { return kHelp; }

namespace {

using std::string_view_literals::operator""sv;

constexpr uint64_t kMostProcesses = 1 << 20;

struct Launcher {
  std::string_view name;
  const char* rank;
  const char* size;
  const char* local_rank;
  // Whether no other program uses these variable names. If true, a rank without a size is an error.
  // If false, a rank without a size is ignored, because RANK may come from an unrelated program.
  bool own_names;
};

// The most reliable launcher is first. Slurm is last, because processes that mpirun or torchrun
// starts inside a Slurm job inherit the variables of the surrounding Slurm task.
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", true},
    {"hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", true},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", false},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", true},
}};
constexpr std::array kNames = {"openmpi"sv, "hydra"sv, "slurm"sv, "torchrun"sv, "none"sv};

// Rank and size from one source, and a text that names the source in error messages.
struct Claim {
  int rank = 0;
  int size = 0;
  std::optional<int> local_rank;
  std::string words;  // for example "OMPI_COMM_WORLD_RANK=1 of OMPI_COMM_WORLD_SIZE=4"
};

class Finder {
 public:
  Finder(const WorldFlags& flags, const Environment& environment, std::string* error,
         std::string* hint)
      : flags_(flags), environment_(environment), error_(error), hint_(hint) {}

  bool Find(World* world) {
    std::optional<Claim> claim;
    if (!FromFlags(&claim) || !FromLaunchers(&claim)) return false;
    if (!claim) claim = Claim{.size = 1, .local_rank = 0, .words = "one process"};
    if (flags_.local_rank) claim->local_rank = flags_.local_rank;
    if (claim->rank >= claim->size) {
      return Fail(claim->words + ": ranks go from 0 to size - 1",
                  "give each process its own --rank below --size");
    }
    if (!claim->local_rank) {
      return Fail(claim->words + ", but the local rank of this process is not known",
                  "set it with --local-rank");
    }
    world->process = claim->rank;
    world->processes = claim->size;
    world->local_process = *claim->local_rank;
    world->gpus_per_process = flags_.gpus_per_process;
    world->ranks_per_gpu = flags_.ranks_per_gpu;
    world->emulated_nodes = flags_.emulate_nodes;
    if (world->ranks_per_gpu > 1) {
      if (world->gpus_per_process > 1) {
        return Fail("--ranks-per-gpu shares a GPU between processes, and --gpus-per-process is " +
                        std::to_string(world->gpus_per_process),
                    "give one of the two");
      }
      if (world->emulated_nodes == 0) world->emulated_nodes = world->processes;
    }
    if (world->emulated_nodes > world->processes) {
      return Fail("--emulate-nodes " + std::to_string(world->emulated_nodes) + " with " +
                      std::to_string(world->processes) +
                      (world->processes == 1 ? " process" : " processes") +
                      ": a process is on one node",
                  "start at least one process a node");
    }
    return true;
  }

 private:
  bool Fail(std::string error, std::string hint) {
    *error_ = std::move(error);
    *hint_ = std::move(hint);
    return false;
  }

  bool FromFlags(std::optional<Claim>* claim) {
    if (flags_.rank.has_value() != flags_.size.has_value()) {
      return Fail(flags_.rank ? "--rank without --size" : "--size without --rank",
                  "give both to every process");
    }
    if (!flags_.rank) return true;
    const int rank = *flags_.rank;
    const int size = *flags_.size;
    // Processes started by hand usually run on one host, so the local rank defaults to the rank.
    *claim = Claim{rank, size, rank,
                   "--rank " + std::to_string(rank) + " of --size " + std::to_string(size)};
    return true;
  }

  bool FromLaunchers(std::optional<Claim>* claim) {
    if (flags_.launcher == "none") return true;
    for (const Launcher& launcher : kLaunchers) {
      if (!flags_.launcher.empty() && launcher.name != flags_.launcher) continue;
      // Ignore Slurm's variables if flags or another launcher gave the rank. Slurm's variables may
      // belong to a task around this run.
      if (launcher.name == "slurm" && claim->has_value() && flags_.launcher.empty()) continue;
      std::optional<Claim> found;
      if (!Read(launcher, &found)) return false;
      if (!found) continue;
      if (!claim->has_value()) {
        *claim = std::move(found);
      } else if ((*claim)->rank != found->rank || (*claim)->size != found->size) {
        return Fail((*claim)->words + " contradicts " + found->words,
                    "name the launcher: --launcher openmpi, hydra, slurm, torchrun, "
                    "or none for --rank and --size alone");
      }
    }
    if (!flags_.launcher.empty() && !claim->has_value()) {
      return Fail("--launcher " + std::string(flags_.launcher) + ": its variables are not set",
                  "start the processes with it, or leave the flag out");
    }
    return true;
  }

  bool Read(const Launcher& launcher, std::optional<Claim>* claim) {
    std::optional<int> rank;
    std::optional<int> size;
    Claim found;
    if (!Number(launcher.rank, &rank) || !Number(launcher.size, &size)) {
      if (!launcher.own_names && flags_.launcher.empty()) return true;
      return false;
    }
    if (!rank && !size) return true;
    // salloc sets the size without a rank, for job steps that start later.
    if (!rank && launcher.name == "slurm") return true;
    if (!rank || !size) {
      if (!launcher.own_names) return true;
      return Fail(std::string(rank ? launcher.rank : launcher.size) + " is set, but not " +
                      (rank ? launcher.size : launcher.rank),
                  "unset it, or give --rank and --size with --launcher none");
    }
    if (!Number(launcher.local_rank, &found.local_rank)) return false;
    found.rank = *rank;
    found.size = *size;
    found.words = std::string(launcher.rank) + "=" + std::to_string(*rank) + " of " +
                  launcher.size + "=" + std::to_string(*size);
    *claim = std::move(found);
    return true;
  }

  bool Number(const char* name, std::optional<int>* number) {
    const char* const text = environment_(name);
    if (text == nullptr || *text == '\0') return true;
    const std::optional<uint64_t> value = ParseUnsigned(text);
    if (!value || *value > kMostProcesses) {
      return Fail(std::string(name) + "=" + Quoted(text) + " is not a number of processes",
                  "unset it, or give --rank and --size with --launcher none");
    }
    *number = static_cast<int>(*value);
    return true;
  }

  const WorldFlags& flags_;
  const Environment& environment_;
  std::string* error_;
  std::string* hint_;
};

}  // namespace

Words LauncherNames() { return kNames; }

bool FindWorld(const WorldFlags& flags, const Environment& environment, World* world,
               std::string* error, std::string* hint) {
  *world = World();
  return Finder(flags, environment, error, hint).Find(world);
}

bool FindMaster(const Environment& environment, std::optional<Endpoint>* endpoint,
                std::string* error) {
  const char* const address = environment("MASTER_ADDR");
  const char* const port = environment("MASTER_PORT");
  if (address == nullptr || port == nullptr || *address == '\0' || *port == '\0') return true;
  std::string host = address;
  if (host.find(':') != std::string::npos && !host.starts_with('[')) host = "[" + host + "]";
  *endpoint = ParseEndpoint(host + ":" + port);
  if (!*endpoint) {
    *error = "MASTER_ADDR=" + Quoted(address) + " and MASTER_PORT=" + Quoted(port) +
             " are no host and port";
    return false;
  }
  // If TORCHELASTIC_USE_AGENT_STORE is True, torchrun's own store listens on MASTER_PORT (PyTorch
  // 1.11 and later). Every process then uses the next port, or port 65534 if MASTER_PORT is 65535.
  const char* const agent_store = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (agent_store != nullptr && std::string_view(agent_store) == "True") {
    Endpoint& found = **endpoint;
    found.port = found.port == 65535 ? found.port - 1 : found.port + 1;
  }
  return true;
}

}  // namespace nccltune::bench
