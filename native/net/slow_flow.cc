// SPDX-License-Identifier: Apache-2.0
#include "net/slow_flow.h"

#include <algorithm>
#include <utility>

#include "net/clock.h"

namespace nccltune::net {
namespace {

constexpr uint64_t kThird = 3;
// In a window: about three megabytes a second, or 32 full chunks. Less is no load to judge by.
constexpr uint64_t kLeastMedianBytes = 16 << 20;
// Of about ten a second.
constexpr uint64_t kLeastLooks = 10;
// A slow path is empty only between two chunks: of a flow paced to a tenth three looks of four saw
// bytes there. Of flows that starved because two CPUs had too many threads, two of five.
constexpr uint64_t kPathPercent = 60;
constexpr int kWindows = 2;
constexpr int64_t kTellAgainNs = 600 * kNsPerSecond;
constexpr int64_t kBetweenWarningsNs = 60 * kNsPerSecond;

FlowWork Since(const FlowWork& now, const FlowWork& before) {
  return {.bytes = now.bytes - before.bytes,
          .looks = now.looks - before.looks,
          .path_looks = now.path_looks - before.path_looks};
}

}  // namespace

uint64_t MedianOfOthers(std::span<const FlowWork> flows, size_t which) {
  std::vector<uint64_t> others;
  others.reserve(flows.size());
  for (size_t i = 0; i < flows.size(); ++i) {
    if (i != which) others.push_back(flows[i].bytes);
  }
  if (others.empty()) return 0;
  // The lower one of two: a rule that is to be sure takes the weaker case.
  const auto middle = others.begin() + static_cast<ptrdiff_t>((others.size() - 1) / 2);
  std::ranges::nth_element(others, middle);
  return *middle;
}

bool IsSlow(std::span<const FlowWork> flows, size_t which) {
  const FlowWork& flow = flows[which];
  const uint64_t median = MedianOfOthers(flows, which);
  return median >= kLeastMedianBytes && flow.bytes * kThird < median && flow.looks >= kLeastLooks &&
         flow.path_looks * 100 >= flow.looks * kPathPercent;
}

std::vector<SlowFlow> SlowFlowWatch::Judge(int64_t now_ns, std::span<const FlowWork> totals) {
  const int64_t length_ns = now_ns - std::exchange(since_ns_, now_ns);
  std::vector<FlowWork> window(of_.size());
  for (size_t i = 0; i < of_.size(); ++i) {
    window[i] = Since(totals[i], std::exchange(of_[i].before, totals[i]));
  }
  std::vector<SlowFlow> told;
  // Nobody looked for a while: the connection was idle, and the window says nothing.
  const bool counts = length_ns < 2 * kSlowWindowNs;
  for (size_t i = 0; i < of_.size(); ++i) {
    Of& of = of_[i];
    if (!counts || !IsSlow(window, i)) {
      of.windows = 0;
      continue;
    }
    if (of.windows++ == 0) of.slow_ns = now_ns - length_ns;
    if (of.windows < kWindows) continue;
    if (of.told_ns && now_ns - *of.told_ns < kTellAgainNs) continue;
    of.told_ns = now_ns;
    // Of the two windows together.
    std::vector<FlowWork> both(of_.size());
    uint64_t all = 0;
    for (size_t k = 0; k < both.size(); ++k) {
      both[k].bytes = window[k].bytes + of_[k].last.bytes;
      all += both[k].bytes;
    }
    const double seconds = static_cast<double>(length_ns + last_ns_) / kNsPerSecond;
    told.push_back({.which = i,
                    .for_ns = now_ns - of.slow_ns,
                    .bytes_per_s = static_cast<double>(both[i].bytes) / seconds,
                    .others_bytes_per_s = static_cast<double>(MedianOfOthers(both, i)) / seconds,
                    .share = static_cast<double>(both[i].bytes) / static_cast<double>(all)});
  }
  for (size_t i = 0; i < of_.size(); ++i) of_[i].last = window[i];
  last_ns_ = length_ns;
  return told;
}

std::optional<uint64_t> WarningBudget::Take(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (last_ns_ && now_ns - *last_ns_ < kBetweenWarningsNs) {
    ++held_back_;
    return std::nullopt;
  }
  last_ns_ = now_ns;
  return std::exchange(held_back_, 0);
}

}  // namespace nccltune::net
