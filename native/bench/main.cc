// SPDX-License-Identifier: Apache-2.0
// nccltune-bench: times NCCL collectives and switches the choice between calls.
//
// Process 0 runs the Conductor, which reads requests and makes all processes run their steps.
// Every process runs a Player, which runs the steps on a Backend.
//
// The files of this folder:
//   answer             combines the results of a step over all processes; one JSON object per line
//   archive            converts structs to bytes and back
//   backend            the interface that runs steps, and the exchange between processes
//   conductor          the main loop of process 0
//   ending             ends the process on a signal, when its parent dies, or by force
//   ensemble           all connections of process 0: the players, standard input and output
//   options            the command line; the number of this process and of all processes
//   player             runs steps for the conductor, in every process, and the backend's thread
//   random             random numbers that are the same on every platform
//   rendezvous         connects the processes: addresses and first messages; _host in process 0,
//                      _join in the others
//   request            parses requests
//   step               the unit of measurement, with its names, result and error texts
//   tuner_control      client of the control interface of our tuner plugin
//   wire               one connection: messages over a socket, and their payloads
//   nccl/              the backend that runs NCCL on GPUs
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/answer.h"
#include "bench/backend.h"
#include "bench/conductor.h"
#include "bench/ending.h"
#include "bench/ensemble.h"
#include "bench/options.h"
#include "bench/player.h"
#include "bench/rendezvous.h"
#include "common/settings.h"
#include "common/token.h"
#include "host/line_channel.h"

namespace nccltune::bench {
namespace {

struct StartFailure {
  int status = kBadArguments;
  std::string text;
  std::string hint;
};

const char* Getenv(const char* name) { return std::getenv(name); }

// Makes NCCL see each emulated node as a host of its own. Returns an error if NCCL_HOSTID is set
// already. Does nothing if no nodes are emulated. Unless NCCL_SOCKET_IFNAME is set, NCCL uses the
// loopback interface. Call EmulateNodes before any library is opened or thread is started, because
// libraries and threads read the environment.
std::optional<StartFailure> EmulateNodes(const World& world) {
  if (world.emulated_nodes == 0) return std::nullopt;
  if (Getenv("NCCL_HOSTID") != nullptr) {
    return StartFailure{kBadArguments, "--emulate-nodes sets NCCL_HOSTID, which is set already",
                        "unset NCCL_HOSTID"};
  }
  const std::string host = "nccltune-emulated-node-" + std::to_string(world.NodeOf(world.process));
  setenv("NCCL_HOSTID", host.c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  return std::nullopt;
}

std::optional<StartFailure> FindRendezvous(const BenchOptions& options, RendezvousConfig* config) {
  const std::string token = ReadPath(SettingId::kToken);
  // The token is secret: libraries and child processes must not see it.
  unsetenv(Settings()[static_cast<size_t>(SettingId::kToken)].name);
  if (config->world.processes == 1) return std::nullopt;
  std::optional<Endpoint> endpoint = options.rendezvous;
  std::string error;
  if (!endpoint && !FindMaster(Getenv, &endpoint, &error)) {
    return StartFailure{kBadArguments, error, "or give --rendezvous HOST:PORT"};
  }
  const std::string processes = std::to_string(config->world.processes) + " processes";
  if (!endpoint) {
    return StartFailure{kBadArguments, processes + " need a rendezvous address, and none is given",
                        "give all of them --rendezvous HOST:PORT with the host of rank 0"};
  }
  const std::optional<Token> parsed = ParseToken(token);
  if (!parsed) {
    return StartFailure{
        kBadArguments,
        token.empty() ? processes + " need a rendezvous token, and NCCLTUNE_TOKEN is not set"
                      : "NCCLTUNE_TOKEN is not 32 hexadecimal digits",
        "set the same value for all of them: export NCCLTUNE_TOKEN=$(openssl rand -hex 16)"};
  }
  config->endpoint = *endpoint;
  config->token = *parsed;
  config->limit = options.start_limit;
  return std::nullopt;
}

// Returns the path of the tuner plugin that is installed with this program, in ../lib relative to
// the folder of the program.
std::string InstalledTuner() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "lib" / "libnccl-tuner-nccltune.so").string();
}

std::optional<StartFailure> MakeBackend(const BenchOptions& options,
                                        std::unique_ptr<Backend>* backend) {
  std::error_code error;
  const std::string tuner =
      std::filesystem::absolute(options.tuner.empty() ? InstalledTuner() : options.tuner, error)
          .string();
  if (!std::filesystem::exists(tuner, error)) {
    return StartFailure{options.tuner.empty() ? kCannotRun : kBadArguments,
                        tuner + ": the tuner plugin was not found",
                        "pass libnccl-tuner-nccltune.so with --tuner"};
  }
  *backend = MakeNcclBackend({options.nccl, tuner, options.start_limit});
  return std::nullopt;
}

StartFailure FailureOf(const RendezvousError& failure, const Signals& signals) {
  switch (failure.kind) {
    case RendezvousError::Kind::kBadInput:
      return {kBadArguments, failure.text, failure.hint};
    case RendezvousError::Kind::kInterrupted:
      return {kSignalled + signals.number(), "ended by " + Signals::Name(signals.number()), ""};
    case RendezvousError::Kind::kMissingProcess:
      break;
  }
  return {kFailed, failure.text, failure.hint};
}

int Report(const StartFailure& failure, host::LineChannel* channel) {
  std::fprintf(stderr, "error: %s\n", failure.text.c_str());
  if (!failure.hint.empty()) std::fprintf(stderr, "hint:  %s\n", failure.hint.c_str());
  if (channel != nullptr) {
    channel->WriteLine(json::Write(ErrorAnswer({}, {"start", failure.text, failure.hint, -1})));
  }
  return failure.status;
}

int Play(const World& world, std::unique_ptr<Backend> backend, Wire wire, const Signals& signals) {
  Player player(world, std::move(backend), std::move(wire), signals.OnSignal());
  std::string why;
  const int status = player.Run(&why);
  // Process 0 reports all errors except its own loss, which must be reported here.
  if (player.lost_conductor()) std::fprintf(stderr, "error: %s\n", why.c_str());
  return status;
}

int Conduct(const World& world, std::unique_ptr<Backend> backend, std::vector<Wire> others,
            const BenchOptions& options, const host::LineChannel& channel, const Signals& signals) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    std::fputs("error: no socket pair could be made\n", stderr);
    return kFailed;
  }
  std::vector<Wire> wires;
  wires.emplace_back(Descriptor(pair[0]));
  for (Wire& wire : others) wires.push_back(std::move(wire));
  std::thread own_player([&world, &backend, wire = Wire(Descriptor(pair[1]))]() mutable {
    std::string why;
    Player(world, std::move(backend), std::move(wire), {}).Run(&why);
  });
  Ensemble::Options ensemble_options = {signals.OnSignal(), channel.input(), channel.output()};
  int status = kOk;
  {
    Ensemble ensemble(std::move(wires), std::move(ensemble_options));
    Conductor::Options settings;
    settings.version = NCCLTUNE_VERSION;
    settings.start_limit = options.start_limit;
    status = Conductor(&ensemble, std::move(settings)).Run();
  }
  own_player.join();
  return status;
}

int Run(const BenchOptions& options) {
  RendezvousConfig config;
  std::string error;
  std::string hint;
  const bool found = FindWorld(options.world, Getenv, &config.world, &error, &hint);
  // Only process 0 writes answers. In every process LineChannel redirects descriptor 1 to standard
  // error, so that the output of libraries cannot mix with the answers.
  host::LineChannel channel;
  const bool is_process_0 = found && config.world.process == 0;
  host::LineChannel* const answers = is_process_0 && channel.ok() ? &channel : nullptr;
  if (!found) return Report({kBadArguments, error, hint}, nullptr);
  if (is_process_0 && !channel.ok()) {
    return Report({kCannotRun, "standard input or output is closed", ""}, nullptr);
  }
  if (auto failure = EmulateNodes(config.world)) return Report(*failure, answers);
  if (auto failure = FindRendezvous(options, &config)) return Report(*failure, answers);
  std::unique_ptr<Backend> backend;
  if (auto failure = MakeBackend(options, &backend)) return Report(*failure, answers);

  const Signals signals;
  if (!EndWithParent()) return kFailed;
  config.interrupt = signals.descriptor();
  if (!is_process_0) {
    std::optional<Wire> wire;
    const auto failure = JoinRendezvous(config, &wire);
    if (!wire) return Report(FailureOf(failure.value_or(RendezvousError()), signals), answers);
    return Play(config.world, std::move(backend), std::move(*wire), signals);
  }
  std::vector<Wire> wires;
  if (config.world.processes > 1) {
    if (const auto failure = HostRendezvous(config, &wires)) {
      return Report(FailureOf(*failure, signals), answers);
    }
  }
  return Conduct(config.world, std::move(backend), std::move(wires), options, channel, signals);
}

int Main(const std::vector<std::string_view>& arguments) {
  BenchOptions options;
  std::string error;
  if (!ParseOptions(arguments, &options, &error)) {
    return Report({kBadArguments, error, "nccltune-bench --help lists the options"}, nullptr);
  }
  if (options.help) {
    const std::string_view help = HelpText();
    std::fwrite(help.data(), 1, help.size(), stdout);
    return kOk;
  }
  if (options.version) {
    std::puts("nccltune-bench " NCCLTUNE_VERSION);
    return kOk;
  }
  return Run(options);
}

}  // namespace
}  // namespace nccltune::bench

int main(int argc, char** argv) {
  return nccltune::bench::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
