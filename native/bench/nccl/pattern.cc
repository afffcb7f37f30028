// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "bench/nccl/element.h"
#include "bench/random.h"

namespace nccltune::bench {
namespace {

constexpr double kLargestTerm = 1000;
constexpr double kLargestExtreme = 100;
constexpr int kMaxFactors = 4;

uint64_t RandomAt(int rank, size_t index) { return MixSeed(static_cast<uint64_t>(rank), index); }

// Returns the largest factor by which the reduction multiplies a rank's data. The factors of mulsum
// are 1 and 2; see PremulScalar.
double LargestWeight(const PatternKey& key) { return key.redop == Redop::kMulsum ? 2 : 1; }

// Returns the number of ranks that contribute a number other than the neutral one to an element.
int Contributors(const PatternKey& key) {
  if (key.redop == Redop::kProd) return std::min(key.ranks, kMaxFactors);
  // Leave room for at least two different numbers from each contributor.
  const double room = LargestExact(key.dtype) / LargestWeight(key) / 2;
  return static_cast<int>(std::clamp<double>(room, 1, key.ranks));
}

bool Contributes(const PatternKey& key, int rank, size_t index) {
  const auto ranks = static_cast<size_t>(key.ranks);
  const size_t place = (static_cast<size_t>(rank) + ranks - index % ranks) % ranks;
  return place < static_cast<size_t>(Contributors(key));
}

double Term(const PatternKey& key, int rank, size_t index) {
  if (!Contributes(key, rank, index)) return 0;
  const double room = LargestExact(key.dtype) / LargestWeight(key) / Contributors(key);
  const auto largest = static_cast<uint64_t>(std::min(room, kLargestTerm));
  return 1.0 + static_cast<double>(RandomAt(rank, index) % largest);
}

double Factor(const PatternKey& key, int rank, size_t index) {
  if (!Contributes(key, rank, index)) return 1;
  const uint64_t random = RandomAt(rank, index);
  const double size = (random & 1U) != 0 ? 2 : 1;
  return FormatOf(key.dtype).is_signed && (random & 2U) != 0 ? -size : size;
}

double Extreme(const PatternKey& key, int rank, size_t index) {
  const auto largest = static_cast<uint64_t>(std::min(LargestExact(key.dtype), kLargestExtreme));
  const uint64_t random = RandomAt(rank, index);
  if (!FormatOf(key.dtype).is_signed) return static_cast<double>(random % (largest + 1));
  return static_cast<double>(random % (2 * largest + 1)) - static_cast<double>(largest);
}

double NumberAt(const PatternKey& key, int rank, size_t index) {
  switch (key.redop) {
    case Redop::kProd:
      return Factor(key, rank, index);
    case Redop::kMax:
    case Redop::kMin:
      return Extreme(key, rank, index);
    case Redop::kSum:
    case Redop::kAvg:
    case Redop::kMulsum:
      return Term(key, rank, index);
  }
  return 0;
}

double ReducedAt(const PatternKey& key, size_t index) {
  double result = NumberAt(key, 0, index);
  if (key.redop == Redop::kMulsum) result *= PremulScalar(0);
  for (int rank = 1; rank < key.ranks; ++rank) {
    const double number = NumberAt(key, rank, index);
    switch (key.redop) {
      case Redop::kSum:
      case Redop::kAvg:
        result += number;
        break;
      case Redop::kMulsum:
        result += number * PremulScalar(rank);
        break;
      case Redop::kProd:
        result *= number;
        break;
      case Redop::kMax:
        result = std::max(result, number);
        break;
      case Redop::kMin:
        result = std::min(result, number);
        break;
    }
  }
  if (key.redop != Redop::kAvg) return result;
  result /= key.ranks;
  return FormatOf(key.dtype).is_real ? result : std::trunc(result);
}

double SmallestStep(const NumberFormat& format) {
  return std::ldexp(1.0, format.least_exponent - format.digits + 1);
}

// Returns whether an integer divided by the number of ranks is stored exactly.
bool AverageIsExact(const PatternKey& key) {
  const NumberFormat format = FormatOf(key.dtype);
  return !format.is_real || (std::has_single_bit(static_cast<unsigned>(key.ranks)) &&
                             1.0 / key.ranks >= SmallestStep(format));
}

}  // namespace

PatternKey PatternKey::For(Collective collective, Dtype dtype, Redop redop, int ranks) {
  const bool reduces = Reduces(collective);
  return {dtype, reduces, reduces ? redop : Redop::kSum, ranks};
}

double PremulScalar(int rank) { return 1 + rank % 2; }

Bytes PatternOf(const PatternKey& key, int rank) {
  const auto size = static_cast<size_t>(SizeOf(key.dtype));
  Bytes bytes(kPatternElements * size);
  for (size_t i = 0; i < kPatternElements; ++i) {
    unsigned char* const element = bytes.data() + i * size;
    if (key.reduces) {
      Encode(key.dtype, NumberAt(key, rank, i), element);
    } else {
      const uint64_t random = RandomAt(rank, i);
      std::memcpy(element, &random, size);
    }
  }
  return bytes;
}

Reduced ReductionOf(const PatternKey& key) {
  const auto size = static_cast<size_t>(SizeOf(key.dtype));
  Reduced reduced;
  reduced.bytes.resize(kPatternElements * size);
  for (size_t i = 0; i < kPatternElements; ++i) {
    Encode(key.dtype, ReducedAt(key, i), reduced.bytes.data() + i * size);
  }
  if (key.redop == Redop::kAvg && !AverageIsExact(key)) {
    // The tolerance allows rounding errors of half a unit in the last place: one for 1/ranks, one
    // for all products together, one for each sum, and one for our own reference. All terms have
    // the same sign, so no partial sum exceeds the result.
    const NumberFormat format = FormatOf(key.dtype);
    const int roundings = Contributors(key) + 3;
    reduced.relative = roundings * std::ldexp(1.0, -format.digits) * 1.01;
    reduced.absolute = roundings * SmallestStep(format);
  }
  return reduced;
}

}  // namespace nccltune::bench
