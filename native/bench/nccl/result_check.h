// SPDX-License-Identifier: Apache-2.0
//
// Compares NCCL's results with the expected ones.
#ifndef NCCLTUNE_BENCH_NCCL_RESULT_CHECK_H_
#define NCCLTUNE_BENCH_NCCL_RESULT_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "bench/nccl/call_layout.h"
#include "bench/nccl/pattern.h"

namespace nccltune::bench {

// Caches the expected data of one PatternKey.
class Reference {
 public:
  void Use(const PatternKey& key);
  const PatternKey& key() const { return key_; }

  // Counts the wrong elements in the bytes at `got`, which start at byte `offset` of the receive
  // region. Incomplete elements are ignored. Elements that belong to no result part count as right.
  int64_t CountWrong(const std::vector<ResultPart>& parts, size_t offset, const unsigned char* got,
                     size_t bytes);

  // Returns the pattern of a rank.
  const Bytes& Pattern(int rank);

 private:
  int64_t CountWrongIn(const ResultPart& part, size_t first, const unsigned char* got,
                       size_t elements);
  int64_t CountWrongElements(const Reduced& expected, const unsigned char* wanted,
                             const unsigned char* got, size_t elements) const;

  PatternKey key_;
  std::map<int, Reduced> expected_;  // key: rank, or ResultPart::kReduced for the reduction
};

// A checked range of a result, in bytes. It holds whole elements.
struct Window {
  size_t offset;
  size_t bytes;
};

// Returns the ranges to check, in order, without overlap. A result of up to 4 MiB is checked
// completely. A larger result gets 64 windows of 64 KiB: one at each end, and one in each of 62
// equal parts between the ends. `seed` decides the places in these parts, so repeated checks cover
// more of the result.
std::vector<Window> WindowsOf(size_t bytes, size_t element, uint64_t seed);

inline constexpr size_t kMaxCheckedBytes = size_t{4} << 20U;

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_RESULT_CHECK_H_
