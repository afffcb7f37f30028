// SPDX-License-Identifier: Apache-2.0
#include "net/wire.h"
#include "testing.h"

namespace nccltune::net {
namespace {

TEST(Granule, IsAPowerOfTwoThatGrowsWithTheRequest) {
  uint64_t before = 0;
  for (uint64_t total = 0; total <= uint64_t{1} << 40; total = 2 * total + 1) {
    const uint64_t granule = Granule(total);
    EXPECT_TRUE(std::has_single_bit(granule)) << total;
    EXPECT_GE(granule, std::max(before, uint64_t{8 << 10})) << total;
    EXPECT_LE(granule, uint64_t{1 << 20}) << total;
    before = granule;
  }
  EXPECT_EQ(Granule(0), uint64_t{8 << 10});
  EXPECT_EQ(Granule(uint64_t{1} << 40), uint64_t{1 << 20});
}

TEST(Granule, KeepsTheMapOfARequestSmallWhileItCanGrow) {
  for (const uint64_t total : {uint64_t{32} << 20, uint64_t{100} << 20, uint64_t{4000} << 20}) {
    EXPECT_LE(total / Granule(total), 4096U) << total;
  }
}

TEST(OnGrid, TakesWhatCanBeCutAndNothingElse) {
  constexpr uint64_t kG = 8192;
  for (const uint64_t total : {uint64_t{0}, uint64_t{1}, kG - 1, kG, kG + 1, 3 * kG, 3 * kG + 5}) {
    for (uint64_t offset = 0; offset <= total + kG; offset += offset % kG == 0 ? 1 : kG - 1) {
      for (const uint64_t end :
           {offset, offset + 1, offset + kG, offset + 2 * kG, total, total + 1}) {
        if (end < offset) continue;
        const uint64_t length = end - offset;
        const bool inside = end <= total;
        const bool cut = offset % kG == 0 && (end % kG == 0 || end == total);
        const bool full = total == 0 ? offset == 0 && length == 0 : length != 0;
        EXPECT_EQ(OnGrid(total, offset, length), inside && cut && full)
            << offset << "+" << length << "/" << total;
      }
    }
  }
}

TEST(OnGrid, DoesNotWrapAround) {
  EXPECT_FALSE(OnGrid(16384, 8192, UINT64_MAX - 8191));
  EXPECT_FALSE(OnGrid(16384, UINT64_MAX - 8191, 8192));
  EXPECT_FALSE(OnGrid(16384, UINT64_MAX - 8191, 24576));
}

TEST(Arrivals, AnEmptyRequestArrivesOnce) {
  Arrivals arrivals;
  arrivals.Reset(0);
  EXPECT_TRUE(arrivals.AnyMissing(0, 0));
  arrivals.Mark(0, 0);
  EXPECT_FALSE(arrivals.AnyMissing(0, 0));
  EXPECT_EQ(arrivals.Mark(0, 0), 0U);
}

TEST(Arrivals, ResetForgetsTheRequestBefore) {
  Arrivals arrivals;
  arrivals.Reset(3 * 8192);
  EXPECT_EQ(arrivals.Mark(0, uint64_t{3} * 8192), 3U * 8192);
  arrivals.Reset(2 * 8192 + 1);
  EXPECT_TRUE(arrivals.AnyMissing(0, 8192));
  EXPECT_TRUE(arrivals.AnyMissing(16384, 1));
  EXPECT_EQ(arrivals.Mark(0, 2 * 8192 + 1), 2U * 8192 + 1);
}

// Compares one request with a map of its granules, at which chunks are cut: at random and repeated,
// until all bytes have arrived.
void ArriveAtRandom(uint64_t total, uint64_t seed) {
  std::mt19937_64 random(seed);
  Arrivals arrivals;
  arrivals.Reset(total);
  const uint64_t granule = Granule(total);
  const uint64_t granules = (total + granule - 1) / granule;
  std::vector<char> there(granules, 0);
  uint64_t missing = total;
  while (missing != 0) {
    const uint64_t first = random() % granules;
    const uint64_t count = 1 + random() % std::min<uint64_t>(granules - first, 9);
    const uint64_t offset = first * granule;
    const uint64_t length = std::min(count * granule, total - offset);
    ASSERT_TRUE(OnGrid(total, offset, length));
    uint64_t fresh = 0;
    for (uint64_t i = first; i < std::min(first + count, granules); ++i) {
      if (there[i] == 0) fresh += std::min(granule, total - i * granule);
      there[i] = 1;
    }
    ASSERT_EQ(arrivals.AnyMissing(offset, length), fresh != 0) << offset << "+" << length;
    ASSERT_EQ(arrivals.Mark(offset, length), fresh) << offset << "+" << length;
    missing -= fresh;
    ASSERT_FALSE(arrivals.AnyMissing(offset, length));
  }
  EXPECT_FALSE(arrivals.AnyMissing(0, total));
}

TEST(Arrivals, AgreeWithAMapOfEveryGranule) {
  uint64_t seed = 0;
  for (const uint64_t total :
       {1U, 8191U, 8192U, 8193U, 65536U, 100'000U, 1U << 20, (3U << 20) + 7U, (40U << 20) + 1U}) {
    SCOPED_TRACE(total);
    for (int i = 0; i < (total > (1U << 20) ? 1 : 10); ++i) ArriveAtRandom(total, ++seed);
  }
}

}  // namespace
}  // namespace nccltune::net
