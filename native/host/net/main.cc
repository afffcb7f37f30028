// SPDX-License-Identifier: Apache-2.0
// nccltune-net-host: moves messages through any net plugin, with the calls that NCCL makes.
//
// The files of this folder:
//   adapter            NetPlugin for one interface version
//   content            sizes and bytes of the test messages
//   endpoint           the plugin and the connections of one process
//   exchange           the work of the progress thread, for each mode
//   host_process       threads, clock, control connection and first failure of one process
//   message_end        one end of a connection, with its buffers and requests
//   net_plugin         a net plugin of any interface version, and the call each thread is in
//   options            the command line
//   peer_link          the control connection between the two processes
//   session            runs one process from opening the plugin to closing it
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

#include "host/net/host_process.h"
#include "host/net/options.h"
#include "host/net/peer_link.h"
#include "host/net/session.h"
#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

int RunRank(const NetCheckOptions& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer) {
  // Restore the default, because a plugin must not depend on its host ignoring SIGPIPE.
  signal(SIGPIPE, SIG_DFL);
  plugin_log::SetEcho(options.log);
  HostProcess process(options, rank, std::move(link), peer);
  auto session = std::make_unique<Session>(&process);
  const int status = session->Run();
  if (status != kOk) session.release();  // NOLINT(bugprone-unused-return-value)
  return status;
}

// Runs one rank in a forked process. After a failure it exits without destructors, because threads
// of the plugin may still use the objects.
[[noreturn]] void RunRankAndExit(const NetCheckOptions& options, int rank,
                                 std::unique_ptr<PeerLink> link, pid_t peer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int status = RunRank(options, rank, std::move(link), peer);
  std::fflush(stdout);
  std::fflush(stderr);
  if (status != kOk) _exit(status);
  std::exit(kRankSucceeded);
}

std::string EndInWords(int status) {
  if (WIFSIGNALED(status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

// Returns whether the exit status of rank 0 shows that rank 0 has reported the result.
bool ReportedResult(int status) {
  if (!WIFEXITED(status)) return false;
  const int code = WEXITSTATUS(status);
  return code == kRankSucceeded || code == kFailed || code == kCannotRun;
}

// Starts both ranks and waits for them. If a rank ended unexpectedly and neither rank has reported
// an error, RunBoth reports that rank as the cause.
int RunBoth(const NetCheckOptions& options) {
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
  const bool reported = ReportedResult(statuses[0]);
  // Kill rank 1 if it is stopped, or if one of its calls hangs.
  const bool disturbed = options.kill_after_ms >= 0 || options.stop_after_ms >= 0;
  if (disturbed || (reported && WEXITSTATUS(statuses[0]) != kRankSucceeded)) {
    kill(processes[1], SIGKILL);
  }
  waitpid(processes[1], &statuses[1], 0);
  if (reported && WEXITSTATUS(statuses[0]) != kRankSucceeded) return WEXITSTATUS(statuses[0]);
  const bool succeeded = WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == kRankSucceeded;
  if (reported && (succeeded || disturbed)) return kOk;
  // Neither rank has reported an error, so the plugin or a signal ended one of them.
  const bool first_vanished =
      reported || (WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == kPeerVanished);
  const int cause = first_vanished ? 1 : 0;
  std::fprintf(stderr, "error: rank %d %s\n", cause, EndInWords(statuses[cause]).c_str());
  return kFailed;
}

int RunOne(const NetCheckOptions& options) {
  std::string error;
  std::unique_ptr<PeerLink> link =
      PeerLink::Connect(options.rank == 0, options.rendezvous, 1000 * options.timeout_s, &error);
  if (link == nullptr) {
    std::fprintf(stderr, "error: the other process was not reached at %s: %s\n",
                 options.rendezvous.c_str(), error.c_str());
    return kCannotRun;
  }
  const bool disturbs =
      options.rank == 0 && (options.kill_after_ms >= 0 || options.stop_after_ms >= 0);
  const pid_t peer = disturbs ? link->peer_process() : 0;
  if (disturbs && peer == 0) {
    std::fputs("error: the other process is not visible here, so it cannot be killed or stopped\n",
               stderr);
    return kCannotRun;
  }
  const int status = RunRank(options, options.rank, std::move(link), peer);
  // Kill the peer if the run failed, or if no option continues the peer. A peer that is still
  // stopped would never exit.
  if (peer != 0 && (status != kOk || options.continue_after_ms < 0)) kill(peer, SIGKILL);
  if (status == kPeerVanished) {
    std::fputs("error: the other process ended during the run\n", stderr);
    return kFailed;
  }
  return status;
}

int Main(const std::vector<std::string_view>& arguments) {
  NetCheckOptions options;
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
  const int status = options.fork ? RunBoth(options) : RunOne(options);
  std::fflush(stdout);
  std::fflush(stderr);
  // Exit without destructors, because a hanging call of the plugin may still run.
  if (status != kOk) _exit(status);
  return status;
}

}  // namespace
}  // namespace nccltune::host::net

int main(int argc, char** argv) {
  return nccltune::host::net::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
