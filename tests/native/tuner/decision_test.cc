// SPDX-License-Identifier: Apache-2.0
#include "tuner/decision.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "abi/tuner_types.h"

namespace nccltune::tuner {
namespace {

// No NCCL up to 2.32 has such a table. The number of protocols is an argument all the same.
TEST(TableOffer, RowsHaveTheLengthThatNcclPasses) {
  constexpr int kLength = abi::kNumProtocols + 1;
  constexpr size_t kPlace = size_t{abi::kNvls} * kLength + abi::kSimple;
  std::array<float, size_t{abi::kNumAlgorithms} * kLength> table;
  table.fill(abi::kIgnore);
  table[kPlace] = 7.0F;
  auto expected = table;
  expected[kPlace] = 0.0F;
  const TableOffer offer(table.data(), abi::kNumAlgorithms, kLength);
  EXPECT_TRUE(offer.CanRun(abi::kNvls, abi::kSimple));
  EXPECT_FALSE(offer.CanRun(abi::kNvls, abi::kLl128));
  offer.Take(abi::kNvls, abi::kSimple);
  EXPECT_EQ(table, expected);
}

TEST(TableOffer, OneProtocolMakesOneColumn) {
  std::array<float, 3> table = {5.0F, 6.0F, 7.0F};
  const TableOffer offer(table.data(), 3, 1);
  EXPECT_TRUE(offer.CanRun(abi::kCollnetDirect, abi::kLl));
  EXPECT_FALSE(offer.CanRun(abi::kTree, abi::kLl128));
  EXPECT_FALSE(offer.CanRun(abi::kCollnetChain, abi::kLl));
}

}  // namespace
}  // namespace nccltune::tuner
