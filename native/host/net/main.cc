// SPDX-License-Identifier: Apache-2.0
// nccltune-net-host: moves messages through any net plugin, with the calls that NCCL makes.
//
// The files of this folder:
//   content            sizes and bytes of the test messages
//   endpoint           the plugin and the connections of one process
//   exchange           the work of the progress thread, for each mode
//   host_process       threads, clock, control connection and first failure of one process
//   message_end        one end of a connection, with its buffers and requests
//   net_plugin         a net plugin of any interface version, and the call each thread is in
//   options            the command line
//   peer_link          the control connection between the two processes
#include <poll.h>
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
#include "host/net/peer_link.h"
#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

// Runs one process from opening the plugin to closing it.
class Session {
 public:
  explicit Session(HostProcess* process) : process_(*process) {}

  // Returns the program's exit status. If it is 0, rank 0 has printed its line of JSON.
  int Run();

 private:
  // Resources that a plugin must release before it is unloaded.
  struct ProcessResources {
    int64_t threads = 0;
    int64_t descriptors = 0;
  };
  static ProcessResources HeldNow();

  bool Round();
  // Exchanges the messages and closes the connections, with all the calls that NCCL makes.
  bool RunAndClose();
  bool CloseInFlight();
  json::Value OwnReport() const;
  bool PrintReport();

  HostProcess& process_;
  // Objects of the current round. They are kept after a failure, because the plugin may still use
  // them.
  std::unique_ptr<PluginEndpoint> endpoint_;
  std::unique_ptr<MessageExchange> exchange_;
  std::string cannot_open_;
  ProcessResources left_behind_;  // additional resources after the last round
  json::Value own_report_;        // this process's report of the last round
  json::Value common_report_;     // the part of the report that is the same in both processes
};

constexpr int kSchemaVersion = 1;
constexpr int kLateWriteMs = 200;
constexpr size_t kMaxWarnings = 50;

// Rounds to a millionth, which is finer than the precision of any value here.
json::Value Rounded(double value) { return std::round(1e6 * value) / 1e6; }

json::Value TransferCountValue(const TransferCount& flow) {
  json::Value value;
  value.Set("messages", static_cast<int64_t>(flow.messages));
  value.Set("bytes", static_cast<int64_t>(flow.bytes));
  return value;
}

json::Value DeviceValue(int index, const NetProperties& properties) {
  json::Value value;
  value.Set("index", index);
  value.Set("name", properties.name);
  value.Set("pci_path", properties.pci_path);
  value.Set("speed_mbps", properties.speed);
  value.Set("latency_us", static_cast<double>(properties.latency));
  value.Set("max_comms", properties.max_comms);
  value.Set("max_recvs", properties.max_recvs);
  json::Value members = json::Value::EmptyArray();
  for (const int member : properties.members) members.Append(member);
  value.Set("members", std::move(members));
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

const json::Value* Member(const json::Value& value, const char* first, const char* second) {
  const json::Value* const inner = value.Find(first);
  return inner == nullptr ? nullptr : inner->Find(second);
}

double Number(const json::Value* value) {
  double number = 0;
  return value != nullptr && value->ToNumber(&number) ? number : 0;
}

// Returns the rate of the received bytes in GB/s; null if none were received.
json::Value GbPerS(const json::Value& report) {
  const double seconds = Number(report.Find("seconds"));
  const double bytes = Number(Member(report, "received", "bytes"));
  return seconds > 0 && bytes > 0 ? Rounded(1e-9 * bytes / seconds) : json::Value();
}

// Returns the CPU seconds of both processes for each GB that either of them received; null if none
// received any.
json::Value CpuSecondsPerGb(const json::Value& ours, const json::Value& theirs) {
  const double gb = 1e-9 * (Number(Member(ours, "received", "bytes")) +
                            Number(Member(theirs, "received", "bytes")));
  const double cpu = Number(ours.Find("cpu_s")) + Number(theirs.Find("cpu_s"));
  return gb > 0 ? Rounded(cpu / gb) : json::Value();
}

int Session::Run() {
  for (int round = 0; round < process_.options().rounds; ++round) {
    process_.StartRound();
    if (Round()) continue;
    if (cannot_open_.empty()) return process_.Finish();
    if (process_.rank() == 0 || !process_.options().fork) {
      std::fprintf(stderr, "error: %s: %s\n", process_.options().plugin.c_str(),
                   cannot_open_.c_str());
    }
    return kCannotRun;
  }
  return PrintReport() ? kOk : process_.Finish();
}

Session::ProcessResources Session::HeldNow() {
  return {.threads = Entries("/proc/self/task"), .descriptors = Entries("/proc/self/fd")};
}

bool Session::Round() {
  const NetCheckOptions& options = process_.options();
  const ProcessResources before = HeldNow();
  endpoint_ = std::make_unique<PluginEndpoint>(&process_);
  if (!endpoint_->Open(&cannot_open_) || !process_.first_failure().ok()) return false;
  if (!endpoint_->Connect()) return false;
  exchange_ = std::make_unique<MessageExchange>(&process_, endpoint_.get());
  if (!RunAndClose()) return false;
  common_report_ = {};
  common_report_.Set("op", ModeName(options.mode));
  common_report_.Set("ok", true);
  common_report_.Set("schema_version", kSchemaVersion);
  common_report_.Set("plugin", endpoint_->name());
  common_report_.Set("interface", endpoint_->version());
  common_report_.Set("device", DeviceValue(endpoint_->device(), endpoint_->properties()));
  common_report_.Set("connections", options.connections);
  common_report_.Set("direction", options.both ? "both" : "forward");
  common_report_.Set("window", options.window);
  common_report_.Set("sizes", options.sizes_text);
  common_report_.Set("rounds", options.rounds);
  if (!endpoint_->Unload()) return false;
  const ProcessResources after = HeldNow();
  left_behind_ = {after.threads - before.threads, after.descriptors - before.descriptors};
  own_report_ = OwnReport();
  exchange_.reset();
  endpoint_.reset();
  return process_.peer_killed() || process_.Barrier();
}

bool Session::RunAndClose() {
  const NetCheckOptions& options = process_.options();
  if (!process_.Run({[&] { exchange_->Register(); }}) || !process_.Barrier()) return false;
  if (!process_.RunAndKill({[&] { exchange_->Progress(); }})) return false;
  if (options.close_in_flight) return CloseInFlight();
  if (!process_.peer_killed() && !process_.Barrier()) return false;
  if (!process_.Run({[&] { exchange_->Deregister(); }}) || !endpoint_->Close()) return false;
  return exchange_->CheckGuards();
}

bool Session::CloseInFlight() {
  process_.Send(PeerMessage::kClosing, {});
  if (!process_.Run({[&] { exchange_->Deregister(); }}) || !endpoint_->Close()) return false;
  exchange_->MarkOutstanding();
  poll(nullptr, 0, kLateWriteMs);
  return exchange_->CheckMarks() && exchange_->CheckGuards();
}

json::Value Session::OwnReport() const {
  const Measured& measured = exchange_->measured();
  json::Value value;
  value.Set("seconds", Rounded(measured.seconds));
  value.Set("sent", TransferCountValue(measured.sent));
  value.Set("received", TransferCountValue(measured.received));
  value.Set("cpu_s", Rounded(measured.cpu_seconds));
  value.Set("profiler_calls", static_cast<int64_t>(NetPlugin::ProfilerCalls()));
  json::Value left;
  left.Set("threads", left_behind_.threads);
  left.Set("descriptors", left_behind_.descriptors);
  value.Set("left_behind", std::move(left));
  value.Set("warnings", Warnings());
  return value;
}

bool Session::PrintReport() {
  if (process_.rank() == 1) {
    process_.Send(PeerMessage::kReport, json::Write(own_report_));
    return true;
  }
  json::Value theirs;
  if (!process_.peer_killed()) {
    std::string text;
    json::Error error;
    if (!process_.Await(PeerMessage::kReport, &text)) return false;
    if (!json::Parse(text, &theirs, &error)) return process_.Fail("no report: " + error.message);
  }
  json::Value line = std::move(common_report_);
  json::Value rates;
  rates.Set("forward", GbPerS(theirs));
  rates.Set("backward", GbPerS(own_report_));
  line.Set("gb_per_s", std::move(rates));
  line.Set("cpu_s_per_gb", theirs.IsNull() ? json::Value() : CpuSecondsPerGb(own_report_, theirs));
  json::Value lost;
  if (const std::optional<PeerLossError>& loss = process_.loss()) {
    lost.Set("call", loss->call);
    lost.Set("result", loss->result);
    if (process_.peer_killed()) {
      lost.Set("after_s",
               Rounded(1e-9 * static_cast<double>(loss->at_ns - process_.killed_at_ns())));
    }
  }
  line.Set("peer_lost", std::move(lost));
  json::Value ranks = json::Value::EmptyArray();
  ranks.Append(std::move(own_report_));
  ranks.Append(std::move(theirs));
  line.Set("ranks", std::move(ranks));
  std::printf("%s\n", json::Write(line).c_str());
  return std::fflush(stdout) == 0;
}

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
  // Kill rank 1 if one of its calls hangs.
  const bool killed = options.kill_after_ms >= 0;
  if (reported && WEXITSTATUS(statuses[0]) != kRankSucceeded) kill(processes[1], SIGKILL);
  waitpid(processes[1], &statuses[1], 0);
  if (reported && WEXITSTATUS(statuses[0]) != kRankSucceeded) return WEXITSTATUS(statuses[0]);
  const bool succeeded = WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == kRankSucceeded;
  if (reported && (succeeded || killed)) return kOk;
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
  const bool kills = options.rank == 0 && options.kill_after_ms >= 0;
  const pid_t peer = kills ? link->peer_process() : 0;
  if (kills && peer == 0) {
    std::fputs("error: the other process is not visible here, so it cannot be killed\n", stderr);
    return kCannotRun;
  }
  const int status = RunRank(options, options.rank, std::move(link), peer);
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
