// SPDX-License-Identifier: Apache-2.0
#include "tuner/decision.h"
#include "abi/tuner.h"
#include "common/vocabulary.h"
#include "testing.h"

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

WithoutTable Facts(int collective, size_t nodes, bool collnet, bool nvls, bool measured_here) {
  WithoutTable facts;
  facts.collective = collective;
  facts.scale = {nodes, nodes * 8};
  facts.collnet_support = collnet ? 1 : 0;
  facts.nvls_support = nvls ? 1 : 0;
  facts.measured_here = measured_here;
  return facts;
}

std::set<std::string> Runnable(const WithoutTable& facts) {
  std::set<std::string> pairs;
  for (int a = 0; a < abi::kNumAlgorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) {
      if (!CanRunWithoutTable(facts, a, p)) continue;
      pairs.insert(std::string(AlgorithmNames()[static_cast<size_t>(a)]) + "/" +
                   std::string(ProtocolNames()[static_cast<size_t>(p)]));
    }
  }
  return pairs;
}

using Pairs = std::set<std::string>;
const Pairs kRingOnly = {"ring/ll", "ring/simple"};
const Pairs kRingMeasured = {"ring/ll", "ring/ll128", "ring/simple"};

Pairs With(Pairs pairs, const Pairs& more) {
  pairs.insert(more.begin(), more.end());
  return pairs;
}

TEST(SupportMatrix, BroadcastAndReduceHaveRingAlone) {
  for (const int collective : {abi::kBroadcast, abi::kReduce}) {
    for (const size_t nodes : {1U, 4U}) {
      EXPECT_EQ(Runnable(Facts(collective, nodes, true, true, false)), kRingOnly);
      EXPECT_EQ(Runnable(Facts(collective, nodes, true, true, true)), kRingMeasured);
    }
  }
}

TEST(SupportMatrix, AllReduce) {
  const Pairs tree_and_ring = With(kRingOnly, {"tree/ll", "tree/simple"});
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 1, false, false, false)), tree_and_ring);
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 1, false, true, false)),
            With(tree_and_ring, {"nvls/simple"}));
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 4, false, true, false)),
            With(tree_and_ring, {"nvls_tree/simple"}));
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 4, true, false, false)),
            With(tree_and_ring, {"collnet_chain/simple"}));
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 4, true, true, true)),
            With(tree_and_ring, {"ring/ll128", "tree/ll128", "nvls/simple", "nvls_tree/simple",
                                 "collnet_chain/simple", "collnet_direct/simple"}));
}

TEST(SupportMatrix, AllGatherAndReduceScatter) {
  for (const int collective : {abi::kAllGather, abi::kReduceScatter}) {
    EXPECT_EQ(Runnable(Facts(collective, 1, false, true, false)), With(kRingOnly, {"nvls/simple"}));
    EXPECT_EQ(Runnable(Facts(collective, 2, true, true, false)), kRingOnly);
    EXPECT_EQ(Runnable(Facts(collective, 2, true, true, true)),
              With(kRingMeasured, {"collnet_direct/simple"}));
  }
}

TEST(SupportMatrix, NothingWhereTheAnswerCannotBeKnown) {
  WithoutTable facts = Facts(abi::kAllReduce, 2, true, true, true);
  facts.filtered = true;
  EXPECT_TRUE(Runnable(facts).empty());
  facts.filtered = false;
  facts.scale.ranks = 1;
  EXPECT_TRUE(Runnable(facts).empty());
}

TEST(SupportMatrix, OnlyOneMeansYes) {
  // NCCL 2.21 tests its flags for 1 exactly.
  WithoutTable facts = Facts(abi::kAllReduce, 1, false, false, false);
  facts.nvls_support = 2;
  EXPECT_FALSE(CanRunWithoutTable(facts, abi::kNvls, abi::kSimple));
}

}  // namespace
}  // namespace nccltune::tuner
