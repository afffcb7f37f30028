// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_PROFILER_DURATIONS_H_
#define NCCLTUNE_PROFILER_DURATIONS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace nccltune::profiler {

// The durations of timed tasks that are alike: their sum, the shortest, the longest, and how many
// each bin has. Any number of threads may add some while others read.
class Durations {
 public:
  // Four bins for each power of two: bin b begins at (4 + b % 4) << (b / 4 + 7) ns, which is 512 ns
  // for the first. The first has all shorter durations too, and the last all from 7.5 s on.
  static constexpr size_t kBins = 96;

  static constexpr size_t BinOf(uint64_t ns) {
    constexpr unsigned kFirstWidth = 10;  // of 512
    const auto width = static_cast<unsigned>(std::bit_width(ns));
    if (width < kFirstWidth) return 0;
    return std::min(size_t{width - kFirstWidth} * 4 + (ns >> (width - 3) & 3U), kBins - 1);
  }

  void Add(uint64_t ns) {
    total_ns_.fetch_add(ns, std::memory_order_relaxed);
    bins_[BinOf(ns)].fetch_add(1, std::memory_order_relaxed);
    Widen(ns, ns);
  }
  void Add(const Durations& other) {
    total_ns_.fetch_add(other.total_ns(), std::memory_order_relaxed);
    for (size_t bin = 0; bin < kBins; ++bin) {
      bins_[bin].fetch_add(other.InBin(bin), std::memory_order_relaxed);
    }
    Widen(other.least_ns(), other.most_ns());
  }

  uint64_t total_ns() const { return total_ns_.load(std::memory_order_relaxed); }
  uint64_t least_ns() const { return least_ns_.load(std::memory_order_relaxed); }
  uint64_t most_ns() const { return most_ns_.load(std::memory_order_relaxed); }
  uint32_t InBin(size_t bin) const { return bins_[bin].load(std::memory_order_relaxed); }

 private:
  void Widen(uint64_t least, uint64_t most) {
    uint64_t found = least_ns();
    while (least < found && !least_ns_.compare_exchange_weak(found, least)) {
    }
    found = most_ns();
    while (most > found && !most_ns_.compare_exchange_weak(found, most)) {
    }
  }

  std::atomic<uint64_t> total_ns_ = 0;
  std::atomic<uint64_t> least_ns_ = ~uint64_t{0};
  std::atomic<uint64_t> most_ns_ = 0;
  std::array<std::atomic<uint32_t>, kBins> bins_{};
};

}  // namespace nccltune::profiler

#endif  // NCCLTUNE_PROFILER_DURATIONS_H_
