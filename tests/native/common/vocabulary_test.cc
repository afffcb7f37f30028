// SPDX-License-Identifier: Apache-2.0
#include "common/vocabulary.h"

#include <gtest/gtest.h>

#include <string>

#include "abi/tuner_types.h"

namespace nccltune {
namespace {

TEST(Vocabulary, APlaceInTheListIsNcclsNumber) {
  EXPECT_EQ(NumberOf(CollectiveNames(), "reducescatter"), abi::kReduceScatter);
  EXPECT_EQ(NumberOf(CollectiveNames(), "allreduce"), abi::kAllReduce);
  EXPECT_EQ(NumberOf(AlgorithmNames(), "collnet_chain"), abi::kCollnetChain);
  EXPECT_EQ(NumberOf(AlgorithmNames(), "pat"), abi::kPat);
  EXPECT_EQ(NumberOf(ProtocolNames(), "simple"), abi::kSimple);
  EXPECT_EQ(NumberOf(ProtocolNames(), "Simple"), std::nullopt);
  EXPECT_EQ(NumberOf(ProtocolNames(), ""), std::nullopt);
}

TEST(Vocabulary, NearestForgivesCaseJointsAndALetter) {
  EXPECT_EQ(Nearest(AlgorithmNames(), " NVLSTree "), "nvls_tree");
  EXPECT_EQ(Nearest(AlgorithmNames(), "collnet-direct"), "collnet_direct");
  EXPECT_EQ(Nearest(AlgorithmNames(), "rings"), "ring");
  EXPECT_EQ(Nearest(CollectiveNames(), "all_gather"), "allgather");
  EXPECT_EQ(Nearest(CollectiveNames(), "reduce scatter"), "reducescatter");
  EXPECT_EQ(Nearest(ProtocolNames(), "LL-128"), "ll128");
}

TEST(Vocabulary, NearestDoesNotGuessWildly) {
  EXPECT_EQ(Nearest(AlgorithmNames(), "butterfly"), "");
  EXPECT_EQ(Nearest(AlgorithmNames(), ""), "");
  EXPECT_EQ(Nearest(AlgorithmNames(), std::string(100000, 'x')), "");
}

TEST(Vocabulary, Listed) { EXPECT_EQ(Listed(ProtocolNames()), "ll ll128 simple"); }

}  // namespace
}  // namespace nccltune
