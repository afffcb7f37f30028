// SPDX-License-Identifier: Apache-2.0
#include "net/slow_flow.h"

#include <algorithm>
#include <utility>

#include "net/clock.h"

namespace nccltune::net {
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
