// SPDX-License-Identifier: Apache-2.0
#include "host/net/session.h"

#include <poll.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

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

}  // namespace

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
  common_report_.Set("order", options.random_order ? "random" : "oldest");
  common_report_.Set("rounds", options.rounds);
  if (!endpoint_->Unload()) return false;
  const ProcessResources after = HeldNow();
  left_behind_ = {after.threads - before.threads, after.descriptors - before.descriptors};
  own_report_ = OwnReport();
  exchange_.reset();
  endpoint_.reset();
  return process_.peer_disturbed() || process_.Barrier();
}

bool Session::RunAndClose() {
  const NetCheckOptions& options = process_.options();
  if (!process_.Run({[&] { exchange_->Register(); }}) || !process_.Barrier()) return false;
  if (!process_.RunDisturbed({[&] { exchange_->Progress(); }})) return false;
  if (options.close_in_flight) return CloseInFlight();
  if (!process_.peer_disturbed() && !process_.Barrier()) return false;
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
  value.Set("asked_again", static_cast<int64_t>(measured.asked_again));
  value.Set("tests", static_cast<int64_t>(measured.tests));
  value.Set("cpu_s", Rounded(measured.cpu_seconds));
  value.Set("progress_cpu_s", Rounded(measured.progress_cpu_seconds));
  value.Set("outstanding_at_close", static_cast<int64_t>(exchange_->outstanding()));
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
  if (!process_.peer_disturbed()) {
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
    if (process_.peer_disturbed()) {
      lost.Set("after_s",
               Rounded(1e-9 * static_cast<double>(loss->at_ns - process_.disturbed_at_ns())));
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

}  // namespace nccltune::host::net
