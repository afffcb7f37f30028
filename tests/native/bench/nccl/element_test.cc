// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace nccltune::bench {
namespace {

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

}  // namespace
}  // namespace nccltune::bench
