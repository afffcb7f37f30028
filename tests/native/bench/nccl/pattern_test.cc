// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/pattern.h"
#include "testing.h"

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
  // With 20 ranks and more an 8-bit float cannot add a number from each of them.
  for (const int ranks : {2, 3, 8, 20, 40}) {
    for (const PatternKey& key : AllReductions(ranks)) {
      const auto size = static_cast<size_t>(SizeOf(key.dtype));
      const Reduced reference = ReductionOf(key);
      std::vector<Bytes> patterns;
      for (int rank = 0; rank < ranks; ++rank) patterns.push_back(PatternOf(key, rank));
      for (size_t i = 0; i < kPatternElements; i += ranks > 8 ? 997 : 61) {
        std::vector<double> numbers;
        for (int rank = 0; rank < ranks; ++rank) {
          numbers.push_back(
              Decode(key.dtype, patterns[static_cast<size_t>(rank)].data() + i * size));
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

constexpr Dtype kAll[] = {Dtype::kInt8,   Dtype::kUint8,    Dtype::kInt32,  Dtype::kUint32,
                          Dtype::kInt64,  Dtype::kUint64,   Dtype::kHalf,   Dtype::kFloat,
                          Dtype::kDouble, Dtype::kBfloat16, Dtype::kF8e4m3, Dtype::kF8e5m2};

uint32_t BitsOf(Dtype dtype, double number) {
  uint32_t bits = 0;
  unsigned char element[8] = {};
  Encode(dtype, number, element);
  std::memcpy(&bits, element, static_cast<size_t>(SizeOf(dtype)));
  return bits;
}

double NumberOf(Dtype dtype, uint32_t bits) { return Decode(dtype, &bits); }

struct Known {
  Dtype dtype;
  uint32_t bits;
  double number;
};

// From the formats' definitions (IEEE 754 binary16; bfloat16; OCP 8-bit floating point, 2023).
constexpr Known kKnown[] = {
    {Dtype::kHalf, 0x3c00, 1},
    {Dtype::kHalf, 0xc000, -2},
    {Dtype::kHalf, 0x7bff, 65504},
    {Dtype::kHalf, 0x0400, 0x1p-14},
    {Dtype::kHalf, 0x0001, 0x1p-24},
    {Dtype::kHalf, 0x3555, 0.333251953125},
    {Dtype::kBfloat16, 0x3f80, 1},
    {Dtype::kBfloat16, 0x4049, 3.140625},
    {Dtype::kBfloat16, 0x0080, 0x1p-126},
    {Dtype::kBfloat16, 0x0001, 0x1p-133},
    {Dtype::kF8e4m3, 0x38, 1},
    {Dtype::kF8e4m3, 0x7e, 448},
    {Dtype::kF8e4m3, 0x08, 0x1p-6},
    {Dtype::kF8e4m3, 0x01, 0x1p-9},
    {Dtype::kF8e4m3, 0xc0, -2},
    {Dtype::kF8e5m2, 0x3c, 1},
    {Dtype::kF8e5m2, 0x7b, 57344},
    {Dtype::kF8e5m2, 0x04, 0x1p-14},
    {Dtype::kF8e5m2, 0x01, 0x1p-16},
    {Dtype::kF8e5m2, 0xc2, -3},
};

TEST(Element, KnowsTheFormats) {
  for (const Known& known : kKnown) {
    EXPECT_EQ(NumberOf(known.dtype, known.bits), known.number) << std::hex << known.bits;
    EXPECT_EQ(BitsOf(known.dtype, known.number), known.bits) << known.number;
  }
}

TEST(Element, EveryNarrowNumberSurvivesARoundTrip) {
  for (const Dtype dtype : {Dtype::kHalf, Dtype::kBfloat16, Dtype::kF8e4m3, Dtype::kF8e5m2}) {
    const uint32_t count = 1U << (8 * SizeOf(dtype));
    uint32_t numbers = 0;
    for (uint32_t bits = 0; bits < count; ++bits) {
      const double number = NumberOf(dtype, bits);
      if (std::isnan(number)) continue;
      ++numbers;
      ASSERT_EQ(BitsOf(dtype, number), bits) << number;
    }
    EXPECT_GT(numbers, count * 9 / 10);
  }
}

TEST(Element, RoundsToTheNearestAndHalfToEven) {
  EXPECT_EQ(NumberOf(Dtype::kHalf, BitsOf(Dtype::kHalf, 2049)), 2048);
  EXPECT_EQ(NumberOf(Dtype::kHalf, BitsOf(Dtype::kHalf, 2051)), 2052);
  EXPECT_EQ(NumberOf(Dtype::kHalf, BitsOf(Dtype::kHalf, 2049.5)), 2050);
  EXPECT_EQ(NumberOf(Dtype::kF8e4m3, BitsOf(Dtype::kF8e4m3, 17)), 16);
  EXPECT_EQ(NumberOf(Dtype::kF8e4m3, BitsOf(Dtype::kF8e4m3, 19)), 20);
  // Rounds up to the next power of two, and from a subnormal to a normal number.
  EXPECT_EQ(NumberOf(Dtype::kF8e5m2, BitsOf(Dtype::kF8e5m2, 7.9)), 8);
  EXPECT_EQ(BitsOf(Dtype::kHalf, 0x1p-14 - 0x1p-26), 0x0400U);
}

TEST(Element, BeyondAllNumbersIsInfinityOrNan) {
  EXPECT_TRUE(std::isinf(NumberOf(Dtype::kHalf, BitsOf(Dtype::kHalf, 1e6))));
  EXPECT_TRUE(std::isinf(NumberOf(Dtype::kF8e5m2, BitsOf(Dtype::kF8e5m2, -1e6))));
  EXPECT_TRUE(std::isnan(NumberOf(Dtype::kF8e4m3, BitsOf(Dtype::kF8e4m3, 1e6))));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(NumberOf(Dtype::kBfloat16, BitsOf(Dtype::kBfloat16, nan))));
}

TEST(Element, WholeNumbersAreExactUpToTheLargestExactOne) {
  for (const Dtype dtype : kAll) {
    const double largest = LargestExact(dtype);
    unsigned char element[8] = {};
    for (double number = 0; number <= std::min(largest, 5000.0); ++number) {
      Encode(dtype, number, element);
      ASSERT_EQ(Decode(dtype, element), number) << static_cast<int>(dtype);
    }
    Encode(dtype, largest, element);
    EXPECT_EQ(Decode(dtype, element), largest) << static_cast<int>(dtype);
    if (FormatOf(dtype).is_real && dtype != Dtype::kDouble) {
      Encode(dtype, largest + 1, element);
      EXPECT_NE(Decode(dtype, element), largest + 1) << static_cast<int>(dtype);
    }
  }
}

// Returns `elements` elements of a pattern, starting at `first`.
Bytes Repeated(const Bytes& pattern, size_t size, size_t first, size_t elements) {
  Bytes bytes;
  for (size_t i = 0; i < elements; ++i) {
    const size_t at = (first + i) % kPatternElements * size;
    bytes.insert(bytes.end(), pattern.begin() + static_cast<ptrdiff_t>(at),
                 pattern.begin() + static_cast<ptrdiff_t>(at + size));
  }
  return bytes;
}

TEST(ResultCheck, CountsEveryWrongElementOnce) {
  Reference reference;
  reference.Use(PatternKey::For(Collective::kScatter, Dtype::kInt32, Redop::kSum, 3));
  const std::vector<ResultPart> parts = {{1, 0, 20000, 12345}};
  Bytes got = Repeated(reference.Pattern(1), 4, 12345, 20000);
  EXPECT_EQ(reference.CountWrong(parts, 0, got.data(), got.size()), 0);
  for (const size_t element : {size_t{0}, size_t{8000}, size_t{19999}}) got[4 * element + 1] ^= 1U;
  got[4 * 8000] ^= 1U;
  EXPECT_EQ(reference.CountWrong(parts, 0, got.data(), got.size()), 3);
  // A window that starts after the first two wrong elements.
  EXPECT_EQ(reference.CountWrong(parts, 40000, got.data() + 40000, got.size() - 40000), 1);
}

TEST(ResultCheck, KnowsThePartsOfAResult) {
  Reference reference;
  reference.Use(PatternKey::For(Collective::kAllGather, Dtype::kInt8, Redop::kSum, 2));
  const std::vector<ResultPart> parts = {{0, 0, 100, 0}, {1, 100, 100, 0}};
  Bytes got = Repeated(reference.Pattern(0), 1, 0, 100);
  const Bytes second = Repeated(reference.Pattern(1), 1, 0, 100);
  got.insert(got.end(), second.begin(), second.end());
  EXPECT_EQ(reference.CountWrong(parts, 0, got.data(), 200), 0);
  std::swap_ranges(got.begin(), got.begin() + 100, got.begin() + 100);
  EXPECT_GT(reference.CountWrong(parts, 0, got.data(), 200), 190);
  EXPECT_GT(reference.CountWrong(parts, 50, got.data() + 50, 100), 90);
}

TEST(ResultCheck, RoundingIsNoErrorAndNanIs) {
  Reference reference;
  const PatternKey key = PatternKey::For(Collective::kAllReduce, Dtype::kFloat, Redop::kAvg, 3);
  reference.Use(key);
  const std::vector<ResultPart> parts = {{ResultPart::kReduced, 0, kPatternElements, 0}};
  Bytes got = ReductionOf(key).bytes;
  size_t at = 0;
  while (Decode(key.dtype, got.data() + at) == 0) at += 4;
  const double right = Decode(key.dtype, got.data() + at);
  const auto wrong_with = [&](double number) {
    Encode(key.dtype, number, got.data() + at);
    return reference.CountWrong(parts, 0, got.data(), got.size());
  };
  EXPECT_EQ(wrong_with(right * (1 + 0x1p-23)), 0);
  EXPECT_EQ(wrong_with(right * (1 + 0x1p-18)), 1);
  EXPECT_EQ(wrong_with(std::nan("")), 1);
}

TEST(ResultCheck, AllOfASmallResultIsLookedAt) {
  const std::vector<Window> windows = WindowsOf(kMaxCheckedBytes, 8, 1);
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows[0].offset, 0U);
  EXPECT_EQ(windows[0].bytes, kMaxCheckedBytes);
}

TEST(ResultCheck, WindowsOfALargeResultAreSpreadAndDifferFromTimeToTime) {
  for (const size_t bytes : {kMaxCheckedBytes + 8, size_t{100} << 20U, (size_t{7} << 30U) + 24}) {
    const std::vector<Window> windows = WindowsOf(bytes, 8, 7);
    size_t total = 0;
    size_t end = 0;
    for (const Window& window : windows) {
      EXPECT_GE(window.offset, end);
      EXPECT_EQ(window.offset % 8, 0U);
      // No gap between windows is longer than two parts.
      EXPECT_LE(window.offset - end, bytes / 62 * 2);
      end = window.offset + window.bytes;
      total += window.bytes;
    }
    EXPECT_EQ(windows.front().offset, 0U);
    EXPECT_EQ(end, bytes);
    EXPECT_EQ(total, kMaxCheckedBytes);
  }
  const size_t large = size_t{1} << 30U;
  EXPECT_NE(WindowsOf(large, 8, 1)[5].offset, WindowsOf(large, 8, 2)[5].offset);
}

}  // namespace
}  // namespace nccltune::bench
