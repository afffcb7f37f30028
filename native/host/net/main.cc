// SPDX-License-Identifier: Apache-2.0
// nccltune-net-host: moves messages through any net plugin, called as NCCL calls it.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json.h"
#include "host/net/net_plugin.h"
#include "host/net/options.h"
#include "host/net/peer_link.h"
#include "host/net/session.h"
#include "host/net/stage.h"
#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

int ListSymbols(const Options& options) {
  std::vector<int> versions;
  std::string error;
  if (!NetPlugin::Interfaces(options.plugin, &versions, &error)) {
    std::fprintf(stderr, "error: %s: cannot be opened: %s\n", options.plugin.c_str(),
                 error.c_str());
    return kCannotRun;
  }
  json::Value line;
  line.Set("op", "list_symbols");
  line.Set("plugin", options.plugin);
  json::Value exported = json::Value::EmptyArray();
  for (const int version : versions) exported.Append(version);
  line.Set("exported", std::move(exported));
  std::printf("%s\n", json::Write(line).c_str());
  return versions.empty() ? kCannotRun : kOk;
}

int RunRank(const Options& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer) {
  // A plugin that writes to a closed socket must not rely on its host for this.
  signal(SIGPIPE, SIG_DFL);
  plugin_log::SetEcho(options.log);
  Stage stage(options, rank, std::move(link), peer);
  auto session = std::make_unique<Session>(&stage);
  const int status = session->Run();
  if (status != kOk) session.release();  // NOLINT(bugprone-unused-return-value)
  return status;
}

// Of a forked process: without what a failed plugin left running being destroyed under it.
[[noreturn]] void RunRankAndExit(const Options& options, int rank, std::unique_ptr<PeerLink> link,
                                 pid_t peer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int status = RunRank(options, rank, std::move(link), peer);
  std::fflush(stdout);
  std::fflush(stderr);
  if (status != kOk) _exit(status);
  std::exit(kWell);
}

std::string EndInWords(int status) {
  if (WIFSIGNALED(status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

// Rank 0 has said how it all went.
bool Told(int status) {
  if (!WIFEXITED(status)) return false;
  const int code = WEXITSTATUS(status);
  return code == kWell || code == kFailed || code == kCannotRun;
}

// Starts both ranks, reaps them, and names the one whose end was the cause where none has said
// more.
int RunBoth(const Options& options) {
  auto [first, second] = PeerLink::Pair();
  if (first == nullptr) {
    std::fprintf(stderr, "error: no socket pair: %s\n", std::strerror(errno));
    return kCannotRun;
  }
  pid_t processes[2] = {-1, -1};
  processes[1] = fork();
  if (processes[1] == 0) {
    first.reset();
    RunRankAndExit(options, 1, std::move(second), 0);
  }
  processes[0] = processes[1] < 0 ? -1 : fork();
  if (processes[0] == 0) {
    second.reset();
    RunRankAndExit(options, 0, std::move(first), processes[1]);
  }
  if (processes[0] < 0) {
    std::fprintf(stderr, "error: cannot fork: %s\n", std::strerror(errno));
    if (processes[1] > 0) kill(processes[1], SIGKILL);
    return kCannotRun;
  }
  first.reset();
  second.reset();
  int statuses[2] = {0, 0};
  waitpid(processes[0], &statuses[0], 0);
  const bool told = Told(statuses[0]);
  // What is left of a peer that was stopped, or whose call hangs.
  const bool disturbed = options.kill_after_ms >= 0 || options.stop_after_ms >= 0;
  if (disturbed || (told && WEXITSTATUS(statuses[0]) != kWell)) kill(processes[1], SIGKILL);
  waitpid(processes[1], &statuses[1], 0);
  if (told && WEXITSTATUS(statuses[0]) != kWell) return WEXITSTATUS(statuses[0]);
  const bool well = WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == kWell;
  if (told && (well || disturbed)) return kOk;
  // Neither has said what was wrong: one of them was ended from within.
  const bool first_vanished =
      told || (WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == kPeerVanished);
  const int cause = first_vanished ? 1 : 0;
  std::fprintf(stderr, "error: rank %d %s\n", cause, EndInWords(statuses[cause]).c_str());
  return kFailed;
}

int RunOne(const Options& options) {
  std::string error;
  std::unique_ptr<PeerLink> link =
      PeerLink::Meet(options.rank == 0, options.rendezvous, 1000 * options.timeout_s, &error);
  if (link == nullptr) {
    std::fprintf(stderr, "error: the other process was not met at %s: %s\n",
                 options.rendezvous.c_str(), error.c_str());
    return kCannotRun;
  }
  const bool disturbs =
      options.rank == 0 && (options.kill_after_ms >= 0 || options.stop_after_ms >= 0);
  const pid_t peer = disturbs ? link->peer_process() : 0;
  if (disturbs && peer == 0) {
    std::fputs("error: the other process cannot be seen from here, nor killed or stopped\n",
               stderr);
    return kCannotRun;
  }
  const int status = RunRank(options, options.rank, std::move(link), peer);
  // Where it was stopped for good, or the run failed before it was to go on.
  if (peer != 0 && (status != kOk || options.continue_after_ms < 0)) kill(peer, SIGKILL);
  if (status == kPeerVanished) {
    std::fputs("error: the other process ended in the middle\n", stderr);
    return kFailed;
  }
  return status;
}

int Main(const std::vector<std::string_view>& arguments) {
  Options options;
  std::string error;
  if (!ParseOptions(arguments, &options, &error)) {
    std::fprintf(stderr, "error: %s\nhint:  nccltune-net-host --help lists the options\n",
                 error.c_str());
    return kUsage;
  }
  if (options.help) {
    const std::string_view help = HelpText();
    std::fwrite(help.data(), 1, help.size(), stdout);
    return kOk;
  }
  if (options.list_symbols) return ListSymbols(options);
  const int status = options.fork ? RunBoth(options) : RunOne(options);
  std::fflush(stdout);
  std::fflush(stderr);
  // A plugin whose call hangs still runs.
  if (status != kOk) _exit(status);
  return status;
}

}  // namespace
}  // namespace nccltune::host::net

int main(int argc, char** argv) {
  return nccltune::host::net::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
