// SPDX-License-Identifier: Apache-2.0
#include "bench/options.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

#include "common/text.h"

namespace nccltune::bench {
namespace {

constexpr uint64_t kMostProcesses = 1 << 20;
constexpr uint64_t kMostGpus = 64;
constexpr double kLongestStart = 86'400;
constexpr double kSlowestPace = 1000;

constexpr std::string_view kHelp =
    R"(nccltune-bench: times NCCL collectives, switching the choice from call to call

usage: nccltune-bench [options]                  one process
       mpirun -n N nccltune-bench [options]      or srun, torchrun: one process a GPU

Rank 0 answers each line of JSON on standard input with lines of JSON on standard output; all other
output goes to standard error. docs/reference/bench.md lists requests and answers.

Which process this is (from the variables of Open MPI, hydra, torchrun or Slurm if not given)
  --rank R --size N          this process, from 0, and how many there are
  --local-rank L             this process among those of its host; its GPUs begin at L times
                             --gpus-per-process (default with --rank: R)
  --gpus-per-process G       GPUs, hence ranks, of each process (default: 1)
  --launcher NAME            whose variables count: openmpi, hydra, slurm, torchrun, none
  --emulate-nodes N          make N nodes of one host (sets NCCL_HOSTID and NCCL_SOCKET_IFNAME)

How the processes meet (with more than one)
  --rendezvous HOST:PORT     where process 0 listens (default: MASTER_ADDR and MASTER_PORT)
  NCCLTUNE_TOKEN             in the environment: 32 hexadecimal digits that all share
  --start-timeout S          seconds for all to come, and for the communicator (default: 120)

What is measured
  --nccl PATH                libnccl.so.2 (default: PyTorch's, else the system's)
  --tuner PATH               nccltune's tuner plugin (default: the one beside this program)
  --replay STUDY             no GPU: draw the timings from a recorded study
  --nccl-version V           with --replay: the NCCL to play (default: the recorded one)
  --scale NODES/RANKS        with --replay: which of several recorded scales
  --pace F                   with --replay: take F times as long as recorded (default: 0)

  --version
  --help

Exit status: 0 ok, 2 bad arguments, 3 no GPU, no library or too old an NCCL, 4 a rank died, a
collective got stuck or NCCL failed, 128 + n ended by signal n.
)";

class OptionReader {
 public:
  OptionReader(Options* options, std::string* error) : options_(options), error_(error) {}

  bool ReadAll(const std::vector<std::string_view>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      std::string_view name = arguments[i];
      if (name == "--help" || name == "--version") {
        (name == "--help" ? options_->help : options_->version) = true;
        continue;
      }
      std::string_view value;
      const size_t equals = name.find('=');
      if (equals != std::string_view::npos) {
        value = name.substr(equals + 1);
        name = name.substr(0, equals);
      } else if (i + 1 < arguments.size()) {
        value = arguments[++i];
      } else {
        return Fail(Quoted(name) + " is not an option, or lacks its value");
      }
      if (!ReadOption(name, value)) return false;
    }
    return options_->help || options_->version || Complete();
  }

 private:
  bool Fail(std::string message) {
    *error_ = std::move(message);
    return false;
  }

  template <typename Out>
  bool Integer(std::string_view name, std::string_view text, uint64_t low, uint64_t high,
               Out* out) {
    const std::optional<uint64_t> number = ParseUnsigned(text);
    if (!number || *number < low || *number > high) {
      return Fail(std::string(name) + ": " + Quoted(text) + " is no number from " +
                  std::to_string(low) + " to " + std::to_string(high));
    }
    *out = static_cast<int>(*number);
    return true;
  }

  bool Real(std::string_view name, std::string_view text, double high, double* out) {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    double number = 0;
    const std::from_chars_result read = std::from_chars(begin, end, number);
    if (read.ec != std::errc() || read.ptr != end || !(number >= 0 && number <= high)) {
      return Fail(std::string(name) + ": " + Quoted(text) + " is no number from 0 to " +
                  std::to_string(static_cast<int>(high)));
    }
    *out = number;
    return true;
  }

  bool Text(std::string_view name, std::string_view text, std::string* out) {
    *out = text;
    return !text.empty() || Fail(std::string(name) + ": the path is empty");
  }

  bool ReadOption(std::string_view name, std::string_view value) {
    WorldFlags& world = options_->world;
    if (name == "--rank") return Integer(name, value, 0, kMostProcesses - 1, &world.rank);
    if (name == "--size") return Integer(name, value, 1, kMostProcesses, &world.size);
    if (name == "--local-rank") return Integer(name, value, 0, kMostProcesses, &world.local_rank);
    if (name == "--gpus-per-process") {
      return Integer(name, value, 1, kMostGpus, &world.gpus_per_process);
    }
    if (name == "--emulate-nodes") {
      return Integer(name, value, 1, kMostProcesses, &world.emulate_nodes);
    }
    if (name == "--launcher") return Launcher(value);
    if (name == "--rendezvous") {
      options_->rendezvous = ParseEndpoint(value);
      return options_->rendezvous || Fail("--rendezvous: " + Quoted(value, 100) +
                                          " is not of the form HOST:PORT or [ADDRESS]:PORT");
    }
    if (name == "--start-timeout") {
      double seconds = 0;
      if (!Real(name, value, kLongestStart, &seconds)) return false;
      options_->start_limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
      return true;
    }
    if (name == "--nccl") return Text(name, value, &options_->nccl);
    if (name == "--tuner") return Text(name, value, &options_->tuner);
    if (name == "--replay") return Text(name, value, &options_->replay);
    if (name == "--nccl-version") {
      options_->nccl_version = ParseNcclVersion(value);
      return options_->nccl_version ||
             Fail("--nccl-version: " + Quoted(value) + " is no version like 2.28.9");
    }
    if (name == "--scale") return Scale(value);
    if (name == "--pace") return Real(name, value, kSlowestPace, &options_->pace);
    return Fail(Quoted(name) + " is not an option");
  }

  bool Launcher(std::string_view value) {
    if (const std::optional<int> number = NumberOf(LauncherNames(), value)) {
      options_->world.launcher = LauncherNames()[static_cast<size_t>(*number)];
      return true;
    }
    std::string message = "--launcher: " + Quoted(value) + " is none of " + Listed(LauncherNames());
    const std::string_view nearest = Nearest(LauncherNames(), value);
    if (!nearest.empty()) message += "; did you mean " + Quoted(nearest) + "?";
    return Fail(std::move(message));
  }

  bool Scale(std::string_view value) {
    const size_t slash = value.find('/');
    int nodes = 0;
    int ranks = 0;
    if (slash == std::string_view::npos ||
        !Integer("--scale", value.substr(0, slash), 1, kMostProcesses, &nodes) ||
        !Integer("--scale", value.substr(slash + 1), 1, kMostProcesses, &ranks)) {
      return Fail("--scale: " + Quoted(value) + " is not of the form NODES/RANKS");
    }
    options_->scale = std::pair(nodes, ranks);
    return true;
  }

  bool Complete() {
    const bool replay = !options_->replay.empty();
    const std::array<std::pair<bool, const char*>, 3> for_replay = {{
        {options_->nccl_version.has_value(), "--nccl-version"},
        {options_->scale.has_value(), "--scale"},
        {options_->pace > 0, "--pace"},
    }};
    for (const auto& [given, name] : for_replay) {
      if (given && !replay) return Fail(std::string(name) + " is for --replay");
    }
    if (replay && !options_->nccl.empty()) return Fail("--nccl and --replay exclude each other");
    return true;
  }

  Options* options_;
  std::string* error_;
};

}  // namespace

bool ParseOptions(const std::vector<std::string_view>& arguments, Options* options,
                  std::string* error) {
  *options = Options();
  return OptionReader(options, error).ReadAll(arguments);
}

std::string_view HelpText() { return kHelp; }

}  // namespace nccltune::bench
