// SPDX-License-Identifier: Apache-2.0
//
// The data that the ranks send, and the results that they must receive.
#ifndef NCCLTUNE_BENCH_NCCL_PATTERN_H_
#define NCCLTUNE_BENCH_NCCL_PATTERN_H_

#include <cstddef>
#include <vector>

#include "bench/words.h"

namespace nccltune::bench {

// The range and precision of a number type.
struct NumberFormat {
  bool is_real = false;
  bool is_signed = false;
  // Bits of the mantissa, including the implicit bit. For an integer, the bits without the sign.
  int digits = 0;
  // For floating point: the smallest normal number is 2^least_exponent.
  int least_exponent = 0;
};

NumberFormat FormatOf(Dtype dtype);

// Returns the largest number N such that all integers from 0 to N are stored exactly (at most
// 2^53).
double LargestExact(Dtype dtype);

// Reads the number in the SizeOf(dtype) bytes at `element`. 64-bit integers are exact up to 2^53.
double Decode(Dtype dtype, const void* element);

// Stores the nearest representable number; ties go to the even one. Integers must be in range.
void Encode(Dtype dtype, double number, void* element);

// The period of a rank's data in elements. The period is prime. So a piece that NCCL puts in the
// wrong place, a multiple of 16 bytes away, differs from the expected data.
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
// For collectives without a reduction the data is random bits. For reductions the data is small
// integers (powers of two for products), chosen so that every partial result in any order is exact.
// So the result has the same bits with every algorithm.
//
// Narrow types cannot hold the sum of all ranks exactly; f8e5m2 is exact only up to 8. In
// reductions of such types, only some ranks contribute a number other than the neutral one to each
// element. Every rank contributes to some elements.
Bytes PatternOf(const PatternKey& key, int rank);

// Returns the factor that `mulsum` applies to this rank's data.
double PremulScalar(int rank);

// The reduction of all ranks' patterns, with the tolerance for a result.
struct Reduced {
  Bytes bytes;
  // 0: the bits must be equal. Otherwise the tolerance is `relative` times the number plus
  // `absolute`. Only averages of floating-point numbers can need a tolerance, because NCCL
  // multiplies by 1/ranks, which may be rounded.
  double relative = 0;
  double absolute = 0;
};

Reduced ReductionOf(const PatternKey& key);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_PATTERN_H_
