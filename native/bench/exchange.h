// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_EXCHANGE_H_
#define NCCLTUNE_BENCH_EXCHANGE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nccltune::bench {

// How the processes of a run speak to each other outside of NCCL. For a backend, from the thread
// that calls it and while it is in Open, Run or Table.
class Exchange {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 10;

  virtual ~Exchange() = default;

  // Every process gives at most kMostBytes, and all get what everyone gave, by process. All
  // processes make the same calls in the same order. False if the run is ending: return soon, what
  // is running is of no use to anyone. On one host it costs from ten to some hundred
  // microseconds, the more the fewer cores are free.
  virtual bool AllGather(std::string_view mine, std::vector<std::string>* all) = 0;

  // From process 0 to all.
  bool Broadcast(std::string* bytes, bool is_source) {
    std::vector<std::string> all;
    if (!AllGather(is_source ? std::string_view(*bytes) : std::string_view(), &all)) return false;
    *bytes = std::move(all[0]);
    return true;
  }
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_EXCHANGE_H_
