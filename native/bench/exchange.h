// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_EXCHANGE_H_
#define NCCLTUNE_BENCH_EXCHANGE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nccltune::bench {

// Collective communication between the processes of a run, without NCCL. A backend may use it only
// inside Open, Run or Table, and only from the thread that called that function.
class ProcessExchange {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 10;

  virtual ~ProcessExchange() = default;

  // Every process passes at most kMaxBytes in `mine`. Every process receives the bytes of all
  // processes, in process order. All processes must make the same calls in the same order. Returns
  // false if the run is ending; the caller should then return soon, because the result of the
  // caller is no longer used. On one host a call takes between ten and several hundred
  // microseconds, longer if few cores are free.
  virtual bool AllGather(std::string_view mine, std::vector<std::string>* all) = 0;

  // Copies the bytes of process 0 to all processes. `is_source` is true in process 0 only. Returns
  // false if the run is ending.
  bool Broadcast(std::string* bytes, bool is_source) {
    std::vector<std::string> all;
    if (!AllGather(is_source ? std::string_view(*bytes) : std::string_view(), &all)) return false;
    *bytes = std::move(all[0]);
    return true;
  }
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_EXCHANGE_H_
