// SPDX-License-Identifier: Apache-2.0
//
// What the ranks put into their buffers, and what must come out.
#ifndef NCCLTUNE_BENCH_NCCL_PATTERN_H_
#define NCCLTUNE_BENCH_NCCL_PATTERN_H_

#include <cstddef>
#include <vector>

#include "bench/words.h"

namespace nccltune::bench {

// Elements after which a rank's data repeats. Prime, so that pieces which NCCL puts in the wrong
// place, a whole number of 16 bytes off, do not look right.
inline constexpr size_t kPatternElements = 8191;

using Bytes = std::vector<unsigned char>;

// What the data depends on.
struct PatternKey {
  Dtype dtype = Dtype::kFloat;
  bool reduces = false;
  Redop redop = Redop::kSum;  // kSum where nothing is reduced
  int ranks = 1;

  static PatternKey For(Collective collective, Dtype dtype, Redop redop, int ranks);
  bool operator==(const PatternKey&) const = default;
};

// A rank's kPatternElements elements.
//
// What is only moved is random bits. What is reduced are small whole numbers (products: powers of
// two), chosen so that every partial result in whatever order is stored exactly: then the result is
// the same bits whichever algorithm ran. For types with little room (f8e5m2 counts to 8) only some
// of the ranks give numbers other than the neutral one at an element, every rank at some.
Bytes PatternOf(const PatternKey& key, int rank);

// What `mulsum` multiplies this rank's data with.
double PremulScalar(int rank);

// The reduction of all ranks' patterns, and how far from it a result may be.
struct Reduced {
  Bytes bytes;
  // 0: the very bits. Else the largest error that rounding explains, as a share of the number plus
  // an absolute part. Only the average of real numbers over ranks that are no power of two needs
  // it: NCCL multiplies by 1/ranks, rounded.
  double relative = 0;
  double absolute = 0;
};

Reduced ReductionOf(const PatternKey& key);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_PATTERN_H_
