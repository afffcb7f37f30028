// SPDX-License-Identifier: Apache-2.0
#include "common/nccl_version.h"

#include <gtest/gtest.h>

namespace nccltune {
namespace {

TEST(NcclVersion, FromCode) {
  EXPECT_EQ(NcclVersionFromCode(22809), (NcclVersion{2, 28, 9}));
  EXPECT_EQ(NcclVersionFromCode(23102), (NcclVersion{2, 31, 2}));
  EXPECT_EQ(NcclVersionFromCode(2804), (NcclVersion{2, 8, 4}));
  EXPECT_EQ(NcclVersionFromCode(0), std::nullopt);
  EXPECT_EQ(NcclVersionFromCode(-22809), std::nullopt);
}

TEST(NcclVersion, FromText) {
  EXPECT_EQ(ParseNcclVersion("2.28.9"), (NcclVersion{2, 28, 9}));
  EXPECT_EQ(ParseNcclVersion("2.28"), (NcclVersion{2, 28, 0}));
  for (const char* text : {"", "2", "2.", "2.28.", "2.28.9.1", ".2", "2.x", "-2.28", "2.1000"}) {
    EXPECT_EQ(ParseNcclVersion(text), std::nullopt) << text;
  }
}

TEST(NcclVersion, OrderAndText) {
  EXPECT_LT((NcclVersion{2, 9, 0}), (NcclVersion{2, 28, 0}));
  EXPECT_EQ(ToString(NcclVersion{2, 28, 9}), "2.28.9");
}

}  // namespace
}  // namespace nccltune
