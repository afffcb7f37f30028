// SPDX-License-Identifier: Apache-2.0
// nccltune-net-host: moves messages through any net plugin, with the calls that NCCL makes.
//
// The files of this folder:
//   content            sizes and bytes of the test messages
//   endpoint           the plugin and the connections of one process
//   exchange           the work of the progress thread, for each mode, and its ends of connections
//   host_process       control connection, failure and clock of one process
//   net_plugin         a net plugin of any interface version
//   options            the command line
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/json.h"
#include "host/net/endpoint.h"
#include "host/net/exchange.h"
#include "host/net/host_process.h"
#include "host/net/options.h"
#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

// Resources that a plugin must release before it is unloaded.
struct ProcessResources {
  int64_t threads = 0;
  int64_t descriptors = 0;
};

constexpr size_t kMaxWarnings = 50;

// Rounds to a millionth, which is finer than the precision of any value here.
json::Value Rounded(double value) { return std::round(1e6 * value) / 1e6; }

json::Value TransferCountValue(const TransferCount& flow) {
  json::Value value;
  value.Set("messages", static_cast<int64_t>(flow.messages));
  value.Set("bytes", static_cast<int64_t>(flow.bytes));
  return value;
}

int64_t Entries(const char* folder) {
  std::error_code error;
  return std::distance(std::filesystem::directory_iterator(folder, error), {});
}

// Returns the plugin's warnings in this process, at most kMaxWarnings.
json::Value Warnings() {
  json::Value warnings = json::Value::EmptyArray();
  for (const LogLine& line : plugin_log::Take().lines) {
    if (line.level != abi::kLogWarn) continue;
    if (warnings.AsArray()->size() == kMaxWarnings) break;
    warnings.Append(line.text);
  }
  return warnings;
}

double Number(const json::Value* value) {
  double number = 0;
  return value != nullptr && value->ToNumber(&number) ? number : 0;
}

// Returns the rate of the received bytes in GB/s; null if none were received.
json::Value GbPerS(const json::Value& report) {
  const double seconds = Number(report.Find("seconds"));
  const json::Value* const received = report.Find("received");
  const double bytes = received == nullptr ? 0 : Number(received->Find("bytes"));
  return seconds > 0 && bytes > 0 ? Rounded(1e-9 * bytes / seconds) : json::Value();
}

ProcessResources HeldNow() {
  return {.threads = Entries("/proc/self/task"), .descriptors = Entries("/proc/self/fd")};
}

// The reports of a round: of this process, and the part that is the same in both processes.
struct Reports {
  json::Value own;
  json::Value common;
};

json::Value OwnReport(const Measured& measured, const ProcessResources& left_behind) {
  json::Value value;
  value.Set("seconds", Rounded(measured.seconds));
  value.Set("sent", TransferCountValue(measured.sent));
  value.Set("received", TransferCountValue(measured.received));
  json::Value left;
  left.Set("threads", left_behind.threads);
  left.Set("descriptors", left_behind.descriptors);
  value.Set("left_behind", std::move(left));
  value.Set("warnings", Warnings());
  return value;
}

json::Value CommonReport(const NetCheckOptions& options, PluginEndpoint& endpoint) {
  json::Value value;
  value.Set("op", ModeName(options.mode));
  value.Set("plugin", endpoint.plugin().name());
  value.Set("interface", endpoint.plugin().version());
  value.Set("device", endpoint.device_name());
  return value;
}

// From opening the plugin to closing it.
Reports RunRound(HostProcess& process) {
  const NetCheckOptions& options = process.options();
  const ProcessResources before = HeldNow();
  process.StartRound();
  PluginEndpoint endpoint(&process);
  std::string error;
  if (!endpoint.Open(&error)) {
    if (process.rank() == 0 || !options.fork) {
      std::fprintf(stderr, "error: %s: %s\n", options.plugin.c_str(), error.c_str());
    }
    _exit(kCannotRun);
  }
  endpoint.Connect();
  MessageExchange exchange(&process, &endpoint);
  exchange.Run();
  json::Value common = CommonReport(options, endpoint);
  endpoint.Unload();
  const ProcessResources after = HeldNow();
  const ProcessResources left = {after.threads - before.threads,
                                 after.descriptors - before.descriptors};
  Reports reports = {OwnReport(exchange.measured(), left), std::move(common)};
  if (!process.peer_killed()) process.Barrier();
  return reports;
}

void PrintReport(HostProcess& process, Reports reports) {
  if (process.rank() == 1) {
    process.Send(PeerMessage::kReport, json::Write(reports.own));
    return;
  }
  json::Value theirs;
  if (!process.peer_killed()) {
    json::Error error;
    if (!json::Parse(process.Await(PeerMessage::kReport), &theirs, &error)) {
      process.Fail("no report: " + error.message);
    }
  }
  json::Value line = std::move(reports.common);
  json::Value rates;
  rates.Set("forward", GbPerS(theirs));
  rates.Set("backward", GbPerS(reports.own));
  line.Set("gb_per_s", std::move(rates));
  json::Value lost;
  if (const std::optional<PeerLossError>& loss = process.loss()) {
    lost.Set("call", loss->call);
    lost.Set("result", loss->result);
  }
  line.Set("peer_lost", std::move(lost));
  json::Value ranks = json::Value::EmptyArray();
  ranks.Append(std::move(reports.own));
  ranks.Append(std::move(theirs));
  line.Set("ranks", std::move(ranks));
  std::printf("%s\n", json::Write(line).c_str());
}

// Returns if the rank succeeded. Every failure ends the process.
void RunRank(const NetCheckOptions& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer) {
  // Restore the default, because a plugin must not depend on its host ignoring SIGPIPE.
  signal(SIGPIPE, SIG_DFL);
  plugin_log::SetEcho(options.log);
  HostProcess process(options, rank, std::move(link), peer);
  Reports reports;
  for (int round = 0; round < options.rounds; ++round) reports = RunRound(process);
  PrintReport(process, std::move(reports));
}

[[noreturn]] void RunRankAndExit(const NetCheckOptions& options, int rank,
                                 std::unique_ptr<PeerLink> link, pid_t peer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  RunRank(options, rank, std::move(link), peer);
  std::exit(kRankSucceeded);
}

std::string EndInWords(int status) {
  if (WIFSIGNALED(status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

// Waits for a rank. Returns its exit status, or -1 if a signal ended it.
int Await(pid_t process, int* status) {
  waitpid(process, status, 0);
  return WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
}

bool HasReportedFailure(int code) { return code == kFailed || code == kCannotRun; }

// Starts both ranks and waits for them. If a rank ended unexpectedly and neither rank has reported
// an error, RunBoth reports that rank as the cause.
int RunBoth(const NetCheckOptions& options) {
  auto [first, second] = PeerLink::Pair();
  if (first == nullptr || !ShareReport()) {
    std::fprintf(stderr, "error: no socket pair or memory: %s\n", std::strerror(errno));
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
  const int of_first = Await(processes[0], &statuses[0]);
  if (HasReportedFailure(of_first)) kill(processes[1], SIGKILL);
  const int of_second = Await(processes[1], &statuses[1]);
  if (HasReportedFailure(of_first)) return of_first;
  if (HasReportedFailure(of_second)) return of_second;
  const bool killed = options.kill_after_ms >= 0;
  if (of_first == kRankSucceeded && (of_second == kRankSucceeded || killed)) return kOk;
  // Neither rank has reported an error, so the plugin or a signal ended one of them.
  const int cause = of_first == kRankSucceeded || of_first == kPeerVanished ? 1 : 0;
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
  const bool kills = options.rank == 0 && options.kill_after_ms >= 0;
  const pid_t peer = kills ? link->peer_process() : 0;
  if (kills && peer == 0) {
    std::fputs("error: the other process is not visible here, so it cannot be killed\n", stderr);
    return kCannotRun;
  }
  RunRank(options, options.rank, std::move(link), peer);
  return kOk;
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
  return options.fork ? RunBoth(options) : RunOne(options);
}

}  // namespace
}  // namespace nccltune::host::net

int main(int argc, char** argv) {
  return nccltune::host::net::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
