// SPDX-License-Identifier: Apache-2.0
#include "net/connection_stats.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <utility>

#include "abi/nccl_types.h"
#include "common/text.h"
#include "net/clock.h"
#include "net/socket.h"

namespace nccltune::net {
namespace {

constexpr int64_t kAskPathNs = kNsPerSecond;

// Returns whether the socket has bytes that the peer's kernel has not acknowledged. If so, the path
// is the bottleneck, and not a thread of either side.
bool OnItsWay(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

constexpr size_t kLongestSummary = 700;

// Returns the warning budget that all connections of this process share.
WarningBudget& Budget() {
  // The budget is never destroyed: connections may be closed during process exit.
  static WarningBudget* const budget = new WarningBudget;
  return *budget;
}

std::string Scaled(double value, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (value >= step * 0.9995 && unit + 1 != units.end()) {
    value /= step;
    ++unit;
  }
  std::array<char, 32> text{};
  const int decimals = unit == units.begin() || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  (void)std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, *unit);
  return text.data();
}

std::string PercentText(double part, double whole) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f %%", whole > 0 ? 100 * part / whole : 0.0);
  return text.data();
}

std::string SecondsText(int64_t ns) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(ns) / kNsPerSecond);
  return text.data();
}

// Appends the count unless it is zero.
void AddCount(std::string* line, const char* separator, const char* what, uint64_t count) {
  if (count != 0) *line += separator + std::string(what) + " " + std::to_string(count);
}

std::string FlowText(const FlowBlock& flow, uint64_t all) {
  const uint64_t bytes = flow.bytes;
  std::string text =
      SizeText(bytes) + " " + PercentText(static_cast<double>(bytes), static_cast<double>(all));
  if (flow.rate != 0) text += " " + SpeedText(static_cast<double>(flow.rate.load()));
  AddCount(&text, " ", "taken over", flow.taken_over);
  AddCount(&text, " ", "deaths", flow.deaths);
  return text;
}

}  // namespace

std::string SizeText(uint64_t bytes) {
  return Scaled(static_cast<double>(bytes), 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string SpeedText(double bytes_per_s) {
  return Scaled(bytes_per_s, 1000, {"B/s", "kB/s", "MB/s", "GB/s"});
}

ConnectionStats::ConnectionStats(StatsRole role, const Log& log, const std::string& device,
                                 const std::string& peer, size_t flows)
    : log_(log), page_(flows), watch_(flows - 1) {
  ConnectionBlock& block = page_.connection();
  block.role = static_cast<uint64_t>(role);
  block.opened_ns = static_cast<uint64_t>(NowNs());
  block.version.Set(NCCLTUNE_VERSION);
  block.device.Set(device);
  block.peer.Set(peer);
  page_.Publish();
  if (!page_.hidden().empty()) {
    log_.Only(abi::kSubsysNet)
        .Info("nccltune net stats cannot see the connection with " + peer + ": " + page_.hidden());
  }
}

ConnectionStats::~ConnectionStats() {
  try {
    log_.Only(abi::kSubsysNet).Info(Summary(NowNs()));
  } catch (const std::exception&) {
    // Out of memory: no line is logged.
    return;
  }
}

FlowStats ConnectionStats::NextFlow() {
  made_ = (made_ + 1) % page_.flows().size();
  return FlowStats(page_.flows()[made_]);
}

void ConnectionStats::Tick(int64_t now_ns) noexcept {
  if (judging_.test_and_set(std::memory_order_acquire)) return;
  try {
    if (watch_.Due(now_ns)) WarnOfSlowFlows(now_ns);
  } catch (const std::exception&) {
    // Out of memory: no warning is logged.
    (void)now_ns;
  }
  judging_.clear(std::memory_order_release);
}

void ConnectionStats::WarnOfSlowFlows(int64_t now_ns) {
  std::vector<FlowWork> totals;
  // The express flow (for small messages) is left out: its load is different.
  for (const FlowBlock& flow : page_.flows().subspan(1)) {
    totals.push_back({flow.bytes, flow.samples, flow.path_samples});
  }
  for (const SlowFlow& slow : watch_.Judge(now_ns, totals)) {
    std::string text = SlowText(slow);
    const std::optional<uint64_t> suppressed = Budget().Take(now_ns);
    if (!suppressed) {
      log_.Info(text);
      continue;
    }
    if (*suppressed != 0) {
      text += "; " + std::to_string(*suppressed) + " more since the last warning, at INFO";
    }
    log_.Warn(text);
  }
}

std::string ConnectionStats::SlowText(const SlowFlow& slow) const {
  const FlowBlock& flow = page_.flows()[slow.which + 1];
  const size_t others = page_.flows().size() - 2;
  std::string text = "slow flow: " + flow.local.Get() + " to " + flow.peer.Get() + " on " +
                     page_.connection().device.Get() + " delivers " + SpeedText(slow.bytes_per_s) +
                     ", the other " + std::to_string(others) +
                     (others == 1 ? " flow " : " flows ") + SpeedText(slow.others_bytes_per_s) +
                     (others == 1 ? "" : " (median)") + ", for " + SecondsText(slow.for_ns) +
                     "; it carries " + PercentText(slow.share, 1) + " of the bytes";
  AddCount(&text, ", ", "retransmits", flow.retransmits);
  return text + ". The other flows carry its share. Check the network path between these two ports";
}

std::string ConnectionStats::Summary(int64_t now_ns) const {
  const ConnectionBlock& block = page_.connection();
  const Counters& counters = block.counters;
  const bool sends = block.role == static_cast<uint64_t>(StatsRole::kSends);
  uint64_t bytes = 0;
  uint64_t chunks = 0;
  uint64_t dials = 0;
  const std::span<FlowBlock> bulk = page_.flows().subspan(1);
  for (const FlowBlock& flow : page_.flows()) bytes += flow.bytes;
  for (const FlowBlock& flow : bulk) chunks += flow.chunks;
  for (const FlowBlock& flow : page_.flows()) dials += flow.dials;
  std::string line = (sends ? "closed: sent to " : "closed: received from ") + block.peer.Get() +
                     " on " + block.device.Get() + " " + SizeText(counters.bytes) + " in " +
                     SecondsText(now_ns - static_cast<int64_t>(block.opened_ns.load())) + ", " +
                     std::to_string(counters.messages) + " messages";
  if (sends) line += " (" + std::to_string(counters.eager) + " eager)";
  line += ", " + std::to_string(chunks) + " chunks";
  if (counters.uncopied_bytes != 0) {
    line += ", " + SizeText(counters.uncopied_bytes) + " without a copy";
  }
  AddCount(&line, ", ", "cancelled", counters.requests - counters.messages);
  AddCount(&line, ", ", "sent twice", counters.sent_twice);
  AddCount(&line, ", ", "resent", counters.sent_again);
  AddCount(&line, ", ", "duplicates", counters.not_wanted);
  AddCount(&line, ", ", "received early", counters.stashed);
  AddCount(&line, ", ", "flow deaths", counters.flow_ends);
  AddCount(&line, ", ", "reconnect attempts", dials);
  line += "; express " + FlowText(page_.flows().front(), bytes) + ", flows ";
  std::vector<std::string> texts;
  for (const FlowBlock& flow : bulk) texts.push_back(FlowText(flow, bytes));
  return WithAsManyAsFit(std::move(line), texts, " | ", kLongestSummary);
}

void FlowStats::CameUp(int fd) {
  // `sequence` is odd while the two texts are written. A reader that sees the same even number
  // before and after has read texts that belong together. The additions are sequentially consistent
  // for that reason.
  block_.sequence.fetch_add(1);
  block_.local.Set(LocalEnd(fd).Name());
  block_.peer.Set(PeerEnd(fd).Name());
  block_.sequence.fetch_add(1);
  Set(block_.up, 1);
  path_ns_ = 0;
}

void FlowStats::WentDown(bool died) {
  died_ = died;
  Set(block_.up, 0);
  Set(block_.undelivered, 0);
  if (died) Add(block_.deaths, 1);
}

void FlowStats::Sample(int64_t now_ns, int fd, bool busy) {
  if (fd < 0) return;
  if (busy) {
    Add(block_.samples, 1);
    const bool owes = block_.undelivered.load(std::memory_order_relaxed) != 0;
    if (owes && OnItsWay(fd)) Add(block_.path_samples, 1);
  }
  if (now_ns - path_ns_ < kAskPathNs) return;
  path_ns_ = now_ns;
  const std::optional<PathFacts> path = ReadPathFacts(fd);
  if (!path) return;
  Set(block_.retransmits, path->retransmits);
  if (path->shortest_round_trip_ns != 0) {
    Set(block_.min_rtt_ns, static_cast<uint64_t>(path->shortest_round_trip_ns));
  }
}

namespace {

constexpr uint64_t kThird = 3;
// Least median of the other flows' bytes in a window: about 3 MB/s, or 32 full chunks. A smaller
// load is too little to judge.
constexpr uint64_t kLeastMedianBytes = 16 << 20;
// Least number of samples in a window; there are about ten a second.
constexpr uint64_t kLeastSamples = 10;
// Least percentage of samples with bytes in flight. A flow limited to a tenth of the others had
// bytes in flight in 75 % of the samples. Flows whose threads were late, because two CPUs had too
// many threads, had bytes in flight in 40 %.
constexpr uint64_t kPathPercent = 60;
constexpr int kWindows = 2;
constexpr int64_t kReportAgainNs = 600 * kNsPerSecond;
constexpr int64_t kBetweenWarningsNs = 60 * kNsPerSecond;

FlowWork Since(const FlowWork& now, const FlowWork& before) {
  return {.bytes = now.bytes - before.bytes,
          .samples = now.samples - before.samples,
          .path_samples = now.path_samples - before.path_samples};
}

}  // namespace

uint64_t MedianOfOthers(std::span<const FlowWork> flows, size_t which) {
  std::vector<uint64_t> others;
  others.reserve(flows.size());
  for (size_t i = 0; i < flows.size(); ++i) {
    if (i != which) others.push_back(flows[i].bytes);
  }
  if (others.empty()) return 0;
  // Of two middle values, take the lower one, to avoid false warnings.
  const auto middle = others.begin() + static_cast<ptrdiff_t>((others.size() - 1) / 2);
  std::ranges::nth_element(others, middle);
  return *middle;
}

bool IsSlow(std::span<const FlowWork> flows, size_t which) {
  const FlowWork& flow = flows[which];
  const uint64_t median = MedianOfOthers(flows, which);
  return median >= kLeastMedianBytes && flow.bytes * kThird < median &&
         flow.samples >= kLeastSamples && flow.path_samples * 100 >= flow.samples * kPathPercent;
}

std::vector<SlowFlow> SlowFlowWatch::Judge(int64_t now_ns, std::span<const FlowWork> totals) {
  const int64_t length_ns = now_ns - std::exchange(since_ns_, now_ns);
  std::vector<FlowWork> window(flows_.size());
  for (size_t i = 0; i < flows_.size(); ++i) {
    window[i] = Since(totals[i], std::exchange(flows_[i].before, totals[i]));
  }
  std::vector<SlowFlow> reported;
  // A window that is too long includes a time without work, so it does not count.
  const bool counts = length_ns < 2 * kSlowWindowNs;
  for (size_t i = 0; i < flows_.size(); ++i) {
    FlowState& flow = flows_[i];
    if (!counts || !IsSlow(window, i)) {
      flow.windows = 0;
      continue;
    }
    if (flow.windows++ == 0) flow.slow_ns = now_ns - length_ns;
    if (flow.windows < kWindows) continue;
    if (flow.reported_ns && now_ns - *flow.reported_ns < kReportAgainNs) continue;
    flow.reported_ns = now_ns;
    // The numbers in the warning cover this window and the one before.
    std::vector<FlowWork> both(flows_.size());
    uint64_t all = 0;
    for (size_t k = 0; k < both.size(); ++k) {
      both[k].bytes = window[k].bytes + flows_[k].last.bytes;
      all += both[k].bytes;
    }
    const double seconds = static_cast<double>(length_ns + last_ns_) / kNsPerSecond;
    reported.push_back(
        {.which = i,
         .for_ns = now_ns - flow.slow_ns,
         .bytes_per_s = static_cast<double>(both[i].bytes) / seconds,
         .others_bytes_per_s = static_cast<double>(MedianOfOthers(both, i)) / seconds,
         .share = static_cast<double>(both[i].bytes) / static_cast<double>(all)});
  }
  for (size_t i = 0; i < flows_.size(); ++i) flows_[i].last = window[i];
  last_ns_ = length_ns;
  return reported;
}

std::optional<uint64_t> WarningBudget::Take(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (last_ns_ && now_ns - *last_ns_ < kBetweenWarningsNs) {
    ++suppressed_;
    return std::nullopt;
  }
  last_ns_ = now_ns;
  return std::exchange(suppressed_, 0);
}

}  // namespace nccltune::net
