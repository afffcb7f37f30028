// SPDX-License-Identifier: Apache-2.0
#include "host/net/exchange.h"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace nccltune::host::net {
namespace {

constexpr unsigned kPassesPerTimeCheck = 256;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Seconds(int64_t ns) { return 1e-9 * static_cast<double>(ns); }

bool Checks(const NetCheckOptions& options) {
  return options.check || options.mode == NetCheckMode::kTransfer;
}

}  // namespace

// Measures counters, wall time and CPU time since the construction of the Meter.
class MessageExchange::Meter {
 public:
  explicit Meter(const MessageExchange& exchange)
      : exchange_(exchange), start_ns_(NowNs()), cpu_(CpuSeconds()), before_(Count()) {}

  void Read(Measured* out) const {
    const Measured now = Count();
    out->seconds = Seconds(NowNs() - start_ns_);
    out->cpu_seconds = CpuSeconds() - cpu_;
    out->sent = {now.sent.messages - before_.sent.messages, now.sent.bytes - before_.sent.bytes};
    out->received = {now.received.messages - before_.received.messages,
                     now.received.bytes - before_.received.bytes};
  }

 private:
  Measured Count() const {
    Measured count;
    for (const auto& end : exchange_.ends_) {
      TransferCount& flow = end->sends() ? count.sent : count.received;
      flow.messages += end->completed();
      flow.bytes += end->bytes();
    }
    return count;
  }

  const MessageExchange& exchange_;
  int64_t start_ns_;
  double cpu_;
  Measured before_;
};

MessageExchange::MessageExchange(HostProcess* process, PluginEndpoint* endpoint)
    : process_(*process), options_(process->options()) {
  for (Connection& connection : endpoint->connections()) {
    ends_.push_back(std::make_unique<MessageEnd>(process, endpoint, &connection, Checks(options_)));
  }
}

void MessageExchange::Register() {
  if (options_.mode == NetCheckMode::kIdle) return;
  for (const auto& end : ends_) end->Register();
}

void MessageExchange::Deregister() {
  if (options_.mode == NetCheckMode::kIdle) return;
  for (const auto& end : ends_) end->Deregister();
}

bool MessageExchange::CheckGuards() {
  if (options_.mode == NetCheckMode::kIdle) return true;
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const auto& end) { return end->CheckGuards(); });
}

void MessageExchange::MarkOutstanding() {
  for (const auto& end : ends_) end->MarkOutstanding();
}

bool MessageExchange::CheckMarks() {
  return std::all_of(ends_.begin(), ends_.end(), [](const auto& end) { return end->CheckMarks(); });
}

bool MessageExchange::AllFinished() const {
  return std::all_of(ends_.begin(), ends_.end(), [](const auto& end) { return end->finished(); });
}

bool MessageExchange::Pass() {
  if (process_.stopped()) return false;
  bool moved = false;
  for (const auto& end : ends_) {
    if (!end->Step(&moved)) return false;
  }
  if (moved) {
    idle_passes_ = 0;
    return true;
  }
  // Store the time at the first pass without progress.
  if (idle_passes_ == 0) moved_at_ns_ = NowNs();
  if (++idle_passes_ % kPassesPerTimeCheck == 0 &&
      NowNs() - moved_at_ns_ > kSecond * options_.timeout_s) {
    const auto waiting =
        std::find_if(ends_.begin(), ends_.end(), [](const auto& end) { return !end->finished(); });
    const std::string what = (waiting == ends_.end() ? ends_.front() : *waiting)->Waiting();
    const std::string after = " after " + std::to_string(options_.timeout_s) + " s";
    return process_.Fail(process_.peer_killed()
                             ? "rank 1 is lost, and the plugin reports no error" + after
                             : what + after + " without progress");
  }
  // Yield, as NCCL's progress thread does.
  sched_yield();
  return true;
}

void MessageExchange::Progress() {
  switch (options_.mode) {
    case NetCheckMode::kTransfer:
      return Transfer();
    case NetCheckMode::kThroughput:
      return Throughput();
    case NetCheckMode::kIdle:
      return Idle();
  }
}

void MessageExchange::Transfer() {
  const bool endless = options_.kill_after_ms >= 0 || options_.close_in_flight;
  for (const auto& end : ends_) end->set_limit(endless ? kNoLimit : options_.messages);
  const uint64_t enough = options_.messages * ends_.size() / 2;
  const Meter meter(*this);
  while (Pass() && !AllFinished()) {
    if (!options_.close_in_flight) continue;
    uint64_t completed = 0;
    for (const auto& end : ends_) completed += end->completed();
    if (process_.peer_closing() || completed >= enough) break;
  }
  if (options_.close_in_flight && !process_.stopped()) {
    for (const auto& end : ends_) {
      if (!end->Fill()) break;
    }
  }
  meter.Read(&measured_);
}

void MessageExchange::Throughput() {
  const int64_t start = NowNs();
  const auto measure_from = start + static_cast<int64_t>(1e9 * options_.warmup_seconds);
  while (NowNs() < measure_from && Pass()) {
  }
  const auto measure_to = measure_from + static_cast<int64_t>(1e9 * options_.seconds);
  const Meter meter(*this);
  while (NowNs() < measure_to && Pass()) {
  }
  meter.Read(&measured_);
  EndTogether();
}

void MessageExchange::EndAfter(bool sends, const std::string& totals) {
  size_t at = 0;
  for (const auto& end : ends_) {
    if (end->sends() != sends) continue;
    uint64_t total = 0;
    if (totals.size() - at < sizeof total) {
      process_.Fail("the other process has other options: it sends on fewer connections");
      return;
    }
    std::memcpy(&total, totals.data() + at, sizeof total);
    at += sizeof total;
    end->EndAfter(total);
  }
}

void MessageExchange::EndTogether() {
  // The receiving ends have posted receives for messages that will not be sent. These receives must
  // be completed by empty messages. The number of messages is sent over the peer link, because some
  // plugins never report sizes that could mark the end. The empty messages follow when no more
  // receives will be posted.
  std::string totals;
  for (const auto& end : ends_) {
    if (!end->sends()) continue;
    const uint64_t total = end->StopPosting();
    totals.append(reinterpret_cast<const char*>(&total), sizeof total);
  }
  process_.Post(PeerMessage::kTotals, totals);
  bool totals_received = false;
  bool totals_acknowledged = false;
  while (!(totals_received && totals_acknowledged && AllFinished()) && Pass()) {
    std::string theirs;
    if (!totals_received && process_.Received(PeerMessage::kTotals, &theirs)) {
      EndAfter(false, theirs);
      process_.Post(PeerMessage::kTotalsTaken, {});
      totals_received = true;
    }
    if (!totals_acknowledged && process_.Received(PeerMessage::kTotalsTaken, &theirs)) {
      EndAfter(true, totals);
      totals_acknowledged = true;
    }
  }
}

void MessageExchange::Idle() {
  const int64_t until = NowNs() + static_cast<int64_t>(1e9 * options_.seconds);
  const Meter meter(*this);
  // Sleep as long as possible, because each wake-up would add to the measured CPU time.
  while (NowNs() < until && !process_.stopped()) {
    poll(nullptr, 0, static_cast<int>(std::clamp<int64_t>((until - NowNs()) / 1'000'000, 1, 1000)));
  }
  meter.Read(&measured_);
}

}  // namespace nccltune::host::net
