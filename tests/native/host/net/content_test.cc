// SPDX-License-Identifier: Apache-2.0
#include "host/net/content.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace nccltune::host::net {
namespace {

Content Of(const Sizes& sizes, uint64_t seed = 1, int connection = 0, bool forward = true) {
  return Content(sizes, seed, connection, forward);
}

TEST(ContentTest, AListIsTakenInTurn) {
  const Content content = Of({.list = {0, 8, 1024}});
  const uint64_t sizes[] = {0, 8, 1024, 0, 8};
  for (uint64_t i = 0; i < std::size(sizes); ++i) EXPECT_EQ(content.SizeOf(i), sizes[i]) << i;
}

TEST(ContentTest, ARangeIsKeptAndReachesBothEnds) {
  const Content content = Of({.list = {3, 1000}, .range = true});
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t size = content.SizeOf(i);
    ASSERT_GE(size, 3U);
    ASSERT_LE(size, 1000U);
    seen.insert(size);
  }
  EXPECT_EQ(*seen.begin(), 3U);
  EXPECT_EQ(*seen.rbegin(), 1000U);
  EXPECT_GT(seen.size(), 500U);
}

TEST(ContentTest, BothProcessesComputeTheSame) {
  const Sizes sizes{.list = {0, 1 << 20}, .range = true};
  EXPECT_EQ(Of(sizes, 7, 3, false).SizeOf(5), Of(sizes, 7, 3, false).SizeOf(5));
  std::vector<unsigned char> bytes(1001);
  Of(sizes, 7, 3, false).Fill(5, bytes.data(), bytes.size());
  EXPECT_TRUE(Of(sizes, 7, 3, false).Matches(5, bytes.data(), bytes.size()));
}

TEST(ContentTest, EverythingElseIsAnother) {
  const Sizes sizes{.list = {64}};
  std::vector<unsigned char> bytes(64);
  Of(sizes).Fill(5, bytes.data(), bytes.size());
  EXPECT_FALSE(Of(sizes).Matches(6, bytes.data(), bytes.size()));
  EXPECT_FALSE(Of(sizes, 2).Matches(5, bytes.data(), bytes.size()));
  EXPECT_FALSE(Of(sizes, 1, 1).Matches(5, bytes.data(), bytes.size()));
  EXPECT_FALSE(Of(sizes, 1, 0, false).Matches(5, bytes.data(), bytes.size()));
}

TEST(ContentTest, ADifferenceIsReportedWithItsPlace) {
  const Content content = Of({.list = {100}});
  std::vector<unsigned char> bytes(100);
  content.Fill(5, bytes.data(), bytes.size());
  EXPECT_EQ(content.Difference(5, bytes.data(), 100), std::nullopt);
  EXPECT_EQ(content.Difference(8, bytes.data(), 100), "carries the bytes of message 5");
  bytes[99] ^= 1;
  EXPECT_EQ(content.Difference(5, bytes.data(), 100), "byte 99 is wrong");
  bytes[8] ^= 1;
  EXPECT_EQ(content.Difference(5, bytes.data(), 100), "2 bytes are wrong, from byte 8 to 99");
}

TEST(ContentTest, NothingIsAlwaysRight) {
  EXPECT_EQ(Of({.list = {0}}).Difference(5, nullptr, 0), std::nullopt);
}

}  // namespace
}  // namespace nccltune::host::net
