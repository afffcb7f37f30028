// SPDX-License-Identifier: Apache-2.0
//
// The data that the ranks send, and the expected results.
#ifndef NCCLTUNE_BENCH_NCCL_PATTERN_H_
#define NCCLTUNE_BENCH_NCCL_PATTERN_H_

#include <cstddef>
#include <vector>

#include "bench/words.h"

namespace nccltune::bench {

// The period of a rank's data in elements. It is prime: a piece that NCCL puts in the wrong place,
// a multiple of 16 bytes off, then differs from the expected data.
inline constexpr size_t kPatternElements = 8191;

using Bytes = std::vector<unsigned char>;

// The properties of a step that determine its data.
struct PatternKey {
  Dtype dtype = Dtype::kFloat;
  bool reduces = false;
  Redop redop = Redop::kSum;  // kSum for collectives without a reduction
  int ranks = 1;

  static PatternKey For(Collective collective, Dtype dtype, Redop redop, int ranks);
  bool operator==(const PatternKey&) const = default;
};

// Returns the kPatternElements elements of a rank.
//
// For collectives without a reduction the data is random bits. For reductions it is small integers
// (powers of two for products), chosen so that every partial result in any order is exact. The
// result then has the same bits whichever algorithm ran. Narrow types such as f8e5m2, which is
// exact up to 8, leave no room for all ranks: at each element only some ranks contribute a number
// other than the neutral one, and every rank contributes at some elements.
Bytes PatternOf(const PatternKey& key, int rank);

// Returns the factor that `mulsum` applies to this rank's data.
double PremulScalar(int rank);

// The reduction of all ranks' patterns, with the tolerance for a result.
struct Reduced {
  Bytes bytes;
  // 0: the bits must be equal. Else the tolerance is `relative` times the number plus `absolute`.
  // Only averages of floating-point numbers over a rank count that is no power of two need it,
  // because NCCL multiplies by the rounded 1/ranks.
  double relative = 0;
  double absolute = 0;
};

Reduced ReductionOf(const PatternKey& key);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_PATTERN_H_
