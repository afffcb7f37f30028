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
constexpr size_t kMostWarnings = 50;

// To a millionth of a unit, more than any of this is worth.
json::Value Rounded(double value) { return std::round(1e6 * value) / 1e6; }

json::Value FlowValue(const Flow& flow) {
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

// The plugin's warnings in this process, the first of them.
json::Value Warnings() {
  json::Value warnings = json::Value::EmptyArray();
  for (const LogLine& line : plugin_log::Take().lines) {
    if (line.level != abi::kLogWarn) continue;
    if (warnings.AsArray()->size() == kMostWarnings) break;
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

// What arrived in a second; null where nothing could.
json::Value GbPerS(const json::Value& report) {
  const double seconds = Number(report.Find("seconds"));
  const double bytes = Number(Member(report, "received", "bytes"));
  return seconds > 0 && bytes > 0 ? Rounded(1e-9 * bytes / seconds) : json::Value();
}

// Of both processes, for a GB that arrived in either of them.
json::Value CpuSecondsPerGb(const json::Value& ours, const json::Value& theirs) {
  const double gb = 1e-9 * (Number(Member(ours, "received", "bytes")) +
                            Number(Member(theirs, "received", "bytes")));
  const double cpu = Number(ours.Find("cpu_s")) + Number(theirs.Find("cpu_s"));
  return gb > 0 ? Rounded(cpu / gb) : json::Value();
}

}  // namespace

int Session::Run() {
  for (int round = 0; round < stage_.options().rounds; ++round) {
    stage_.StartRound();
    if (Round()) continue;
    if (cannot_open_.empty()) return stage_.Finish();
    if (stage_.rank() == 0 || !stage_.options().fork) {
      std::fprintf(stderr, "error: %s: %s\n", stage_.options().plugin.c_str(),
                   cannot_open_.c_str());
    }
    return kCannotRun;
  }
  return PrintReport() ? kOk : stage_.Finish();
}

Session::Held Session::HeldNow() {
  return {.threads = Entries("/proc/self/task"), .descriptors = Entries("/proc/self/fd")};
}

bool Session::Round() {
  const Options& options = stage_.options();
  const Held before = HeldNow();
  endpoint_ = std::make_unique<Endpoint>(&stage_);
  if (!endpoint_->Open(&cannot_open_) || !stage_.verdict().ok()) return false;
  if (!endpoint_->Connect()) return false;
  exchange_ = std::make_unique<Exchange>(&stage_, endpoint_.get());
  if (!RunAndClose()) return false;
  head_ = {};
  head_.Set("op", ModeName(options.mode));
  head_.Set("ok", true);
  head_.Set("schema_version", kSchemaVersion);
  head_.Set("plugin", endpoint_->name());
  head_.Set("interface", endpoint_->version());
  head_.Set("device", DeviceValue(endpoint_->device(), endpoint_->properties()));
  head_.Set("connections", options.connections);
  head_.Set("direction", options.both ? "both" : "forward");
  head_.Set("window", exchange_->window());
  head_.Set("sizes", options.sizes_text);
  head_.Set("order", options.random_order ? "random" : "oldest");
  head_.Set("rounds", options.rounds);
  if (!endpoint_->Shut()) return false;
  const Held after = HeldNow();
  left_ = {after.threads - before.threads, after.descriptors - before.descriptors};
  own_ = OwnReport();
  exchange_.reset();
  endpoint_.reset();
  return stage_.peer_disturbed() || stage_.Barrier();
}

bool Session::RunAndClose() {
  const Options& options = stage_.options();
  if (!stage_.Run({[&] { exchange_->Register(); }}) || !stage_.Barrier()) return false;
  if (!stage_.RunDisturbed({[&] { exchange_->Progress(); }})) return false;
  if (options.close_in_flight) return CloseInFlight();
  if (!stage_.peer_disturbed() && !stage_.Barrier()) return false;
  if (!stage_.Run({[&] { exchange_->Deregister(); }}) || !endpoint_->Close()) return false;
  return exchange_->CheckGuards();
}

bool Session::CloseInFlight() {
  stage_.Say(Word::kClosing, {});
  if (!stage_.Run({[&] { exchange_->Deregister(); }}) || !endpoint_->Close()) return false;
  exchange_->MarkOutstanding();
  poll(nullptr, 0, kLateWriteMs);
  return exchange_->CheckMarks() && exchange_->CheckGuards();
}

json::Value Session::OwnReport() const {
  const Measured& measured = exchange_->measured();
  json::Value value;
  value.Set("seconds", Rounded(measured.seconds));
  value.Set("sent", FlowValue(measured.sent));
  value.Set("received", FlowValue(measured.received));
  value.Set("asked_again", static_cast<int64_t>(measured.asked_again));
  value.Set("tests", static_cast<int64_t>(measured.tests));
  value.Set("cpu_s", Rounded(measured.cpu_seconds));
  value.Set("progress_cpu_s", Rounded(measured.progress_cpu_seconds));
  value.Set("outstanding_at_close", static_cast<int64_t>(exchange_->outstanding()));
  value.Set("profiler_calls", static_cast<int64_t>(NetPlugin::ProfilerCalls()));
  json::Value left;
  left.Set("threads", left_.threads);
  left.Set("descriptors", left_.descriptors);
  value.Set("left_behind", std::move(left));
  value.Set("warnings", Warnings());
  value.Set("latencies", measured.latencies);
  return value;
}

bool Session::PrintReport() {
  if (stage_.rank() == 1) {
    stage_.Say(Word::kReport, json::Write(own_));
    return true;
  }
  json::Value theirs;
  if (!stage_.peer_disturbed()) {
    std::string text;
    json::Error error;
    if (!stage_.Await(Word::kReport, &text)) return false;
    if (!json::Parse(text, &theirs, &error)) return stage_.Fail("no report: " + error.message);
  }
  json::Value line = std::move(head_);
  json::Value rates;
  rates.Set("forward", GbPerS(theirs));
  rates.Set("backward", GbPerS(own_));
  line.Set("gb_per_s", std::move(rates));
  line.Set("cpu_s_per_gb", theirs.IsNull() ? json::Value() : CpuSecondsPerGb(own_, theirs));
  const json::Value* const latencies = own_.Find("latencies");
  line.Set("latencies", latencies == nullptr ? json::Value() : *latencies);
  json::Value lost;
  if (const std::optional<Loss>& loss = stage_.loss()) {
    lost.Set("call", loss->call);
    lost.Set("result", loss->result);
    if (stage_.peer_disturbed()) {
      lost.Set("after_s",
               Rounded(1e-9 * static_cast<double>(loss->at_ns - stage_.disturbed_at_ns())));
    }
  }
  line.Set("peer_lost", std::move(lost));
  json::Value ranks = json::Value::EmptyArray();
  ranks.Append(std::move(own_));
  ranks.Append(std::move(theirs));
  line.Set("ranks", std::move(ranks));
  std::printf("%s\n", json::Write(line).c_str());
  return std::fflush(stdout) == 0;
}

}  // namespace nccltune::host::net
