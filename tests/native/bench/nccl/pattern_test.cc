// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <vector>

namespace nccltune::bench {
namespace {

std::vector<PatternKey> AllReductions(int ranks) {
  std::vector<PatternKey> keys;
  for (size_t dtype = 0; dtype < DtypeNames().size(); ++dtype) {
    for (size_t redop = 0; redop < RedopNames().size(); ++redop) {
      keys.push_back(PatternKey::For(Collective::kAllReduce, static_cast<Dtype>(dtype),
                                     static_cast<Redop>(redop), ranks));
    }
  }
  return keys;
}

std::string NameOf(const PatternKey& key) {
  return std::string(DtypeNames()[static_cast<size_t>(key.dtype)]) + " " +
         std::string(RedopNames()[static_cast<size_t>(key.redop)]) + " over " +
         std::to_string(key.ranks);
}

double Rounded(Dtype dtype, double number) {
  unsigned char element[8] = {};
  Encode(dtype, number, element);
  return Decode(dtype, element);
}

// Reduces in the given order and rounds each step to the type.
double ReducedInOrder(const PatternKey& key, std::vector<double> numbers) {
  const bool real_average = key.redop == Redop::kAvg && FormatOf(key.dtype).is_real;
  const double share = Rounded(key.dtype, 1.0 / key.ranks);
  double result = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double number = real_average ? Rounded(key.dtype, numbers[i] * share) : numbers[i];
    if (i == 0) {
      result = number;
    } else if (key.redop == Redop::kProd) {
      result = Rounded(key.dtype, result * number);
    } else if (key.redop == Redop::kMax) {
      result = std::max(result, number);
    } else if (key.redop == Redop::kMin) {
      result = std::min(result, number);
    } else {
      result = Rounded(key.dtype, result + number);
    }
  }
  return key.redop == Redop::kAvg && !real_average ? std::trunc(result / key.ranks) : result;
}

TEST(Pattern, AnyOrderOfReductionGivesTheReference) {
  std::mt19937 random(1);
  for (const int ranks : {2, 3, 4, 8, 40}) {
    for (const PatternKey& key : AllReductions(ranks)) {
      const auto size = static_cast<size_t>(SizeOf(key.dtype));
      const Reduced reference = ReductionOf(key);
      std::vector<Bytes> patterns;
      for (int rank = 0; rank < ranks; ++rank) patterns.push_back(PatternOf(key, rank));
      for (size_t i = 0; i < kPatternElements; i += ranks > 8 ? 997 : 61) {
        std::vector<double> numbers;
        for (int rank = 0; rank < ranks; ++rank) {
          double number = Decode(key.dtype, patterns[static_cast<size_t>(rank)].data() + i * size);
          if (key.redop == Redop::kMulsum) number = Rounded(key.dtype, number * PremulScalar(rank));
          numbers.push_back(number);
        }
        std::shuffle(numbers.begin(), numbers.end(), random);
        const double got = ReducedInOrder(key, numbers);
        const double wanted = Decode(key.dtype, reference.bytes.data() + i * size);
        const double allowed = reference.relative * std::fabs(wanted) + reference.absolute;
        ASSERT_LE(std::fabs(got - wanted), allowed) << NameOf(key) << " at " << i;
      }
    }
  }
}

TEST(Pattern, OnlyAveragesOfRealsOverOddRanksAreInexact) {
  for (const int ranks : {2, 3, 4, 6, 8}) {
    for (const PatternKey& key : AllReductions(ranks)) {
      const bool inexact =
          key.redop == Redop::kAvg && FormatOf(key.dtype).is_real && (ranks == 3 || ranks == 6);
      EXPECT_EQ(ReductionOf(key).relative > 0, inexact) << NameOf(key);
    }
  }
}

TEST(Pattern, TheToleranceIsSmallAgainstAMissingRank) {
  // In the average of three ranks, one rank contributes a third; with 8-bit floats the rounding
  // error is as large.
  for (const Dtype dtype : {Dtype::kHalf, Dtype::kFloat, Dtype::kDouble, Dtype::kBfloat16}) {
    const Reduced reduced =
        ReductionOf(PatternKey::For(Collective::kAllReduce, dtype, Redop::kAvg, 3));
    EXPECT_LT(reduced.relative, 0.05);
  }
}

TEST(Pattern, EveryRankMatters) {
  for (const int ranks : {3, 20}) {
    for (const PatternKey& key : AllReductions(ranks)) {
      const auto size = static_cast<size_t>(SizeOf(key.dtype));
      for (int rank = 0; rank < ranks; rank += 7) {
        const Bytes pattern = PatternOf(key, rank);
        std::set<double> numbers;
        for (size_t i = 0; i < kPatternElements; ++i) {
          numbers.insert(Decode(key.dtype, pattern.data() + i * size));
        }
        EXPECT_GE(numbers.size(), 2U) << NameOf(key) << " rank " << rank;
      }
    }
  }
}

TEST(Pattern, MovedDataDifferBetweenRanksAndWithin) {
  const PatternKey key = PatternKey::For(Collective::kAllGather, Dtype::kInt8, Redop::kMax, 4);
  EXPECT_EQ(key, PatternKey::For(Collective::kBroadcast, Dtype::kInt8, Redop::kSum, 4));
  const Bytes first = PatternOf(key, 0);
  const Bytes second = PatternOf(key, 1);
  ASSERT_EQ(first.size(), kPatternElements);
  size_t same = 0;
  size_t shifted = 0;
  for (size_t i = 0; i + 16 < first.size(); ++i) {
    if (first[i] == second[i]) ++same;
    if (first[i] == first[i + 16]) ++shifted;
  }
  EXPECT_LT(same, kPatternElements / 64);
  EXPECT_LT(shifted, kPatternElements / 64);
}

}  // namespace
}  // namespace nccltune::bench
