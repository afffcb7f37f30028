// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/result_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/nccl/pattern.h"

namespace nccltune::bench {
namespace {

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
