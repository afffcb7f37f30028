// SPDX-License-Identifier: Apache-2.0
//
// Holds what NCCL delivered against what it should have.
#ifndef NCCLTUNE_BENCH_NCCL_RESULT_CHECK_H_
#define NCCLTUNE_BENCH_NCCL_RESULT_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "bench/nccl/call_layout.h"
#include "bench/nccl/pattern.h"

namespace nccltune::bench {

// References, each made once and kept as long as the key stays the same.
class Reference {
 public:
  void Use(const PatternKey& key);
  const PatternKey& key() const { return key_; }

  // Elements that are wrong among the whole elements at `got`, which are those from byte `offset`
  // of the receive region on. What is not part of a result counts as right.
  int64_t CountWrong(const std::vector<ResultPart>& parts, size_t offset, const unsigned char* got,
                     size_t bytes);

  // The pattern of a rank.
  const Bytes& Pattern(int rank);

 private:
  int64_t CountWrongIn(const ResultPart& part, size_t first, const unsigned char* got,
                       size_t elements);
  int64_t CountWrongElements(const Reduced& expected, const unsigned char* wanted,
                             const unsigned char* got, size_t elements) const;

  PatternKey key_;
  std::map<int, Reduced> expected_;  // by rank; ResultPart::kReduced: the reduction
};

// Parts of a result that are looked at, in bytes; whole elements, in order, not overlapping.
struct Window {
  size_t offset;
  size_t bytes;
};

// All of `bytes` up to 4 MiB. Beyond that 64 windows of 64 KiB: one at each end, the others at
// places that depend on `seed`, one in each 62nd part, so that repeated checks see more.
std::vector<Window> WindowsOf(size_t bytes, size_t element, uint64_t seed);

inline constexpr size_t kMostCheckedBytes = size_t{4} << 20U;

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_RESULT_CHECK_H_
