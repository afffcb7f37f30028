// SPDX-License-Identifier: Apache-2.0
// The data that the ranks send, and the results that they must receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "bench/nccl/call_layout.h"
#include "bench/step.h"

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

// Compares NCCL's results with the expected ones.

// Caches the expected data of one PatternKey.
class Reference {
 public:
  void Use(const PatternKey& key);
  const PatternKey& key() const { return key_; }

  // Counts the wrong elements in the bytes at `got`, which start at byte `offset` of the receive
  // region. Incomplete elements are ignored. Elements that belong to no result part count as right.
  int64_t CountWrong(const std::vector<ResultPart>& parts, size_t offset, const unsigned char* got,
                     size_t bytes);

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
