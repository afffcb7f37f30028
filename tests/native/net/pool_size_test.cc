// SPDX-License-Identifier: Apache-2.0
#include "net/pool_size.h"

#include <gtest/gtest.h>

namespace nccltune::net {
namespace {

TEST(PoolThreads, AreThreeOfFourCpusWithinBounds) {
  const NetSettings automatic;
  EXPECT_EQ(PoolThreads(automatic, 1), 2);
  EXPECT_EQ(PoolThreads(automatic, 2), 2);
  EXPECT_EQ(PoolThreads(automatic, 4), 4);
  EXPECT_EQ(PoolThreads(automatic, 8), 6);
  EXPECT_EQ(PoolThreads(automatic, 26), 19);
  EXPECT_EQ(PoolThreads(automatic, 384), 24);
}

TEST(PoolThreads, AreWhatIsSet) {
  NetSettings settings;
  settings.threads = 1;
  EXPECT_EQ(PoolThreads(settings, 384), 1);
  settings.threads = 64;
  EXPECT_EQ(PoolThreads(settings), 64);
}

TEST(FlowsOf, AreHalfOfTheThreadsWithinBounds) {
  const NetSettings automatic;
  EXPECT_EQ(FlowsOf(automatic, 1), 2);
  EXPECT_EQ(FlowsOf(automatic, 4), 2);
  EXPECT_EQ(FlowsOf(automatic, 6), 3);
  EXPECT_EQ(FlowsOf(automatic, 16), 8);
  EXPECT_EQ(FlowsOf(automatic, 24), 8);
  NetSettings settings;
  settings.flows = 12;
  EXPECT_EQ(FlowsOf(settings, 2), 12);
}

TEST(DevicesOfNic, MakeFourOfAllNicsOnManyCpus) {
  EXPECT_EQ(DevicesOfNic(1, 8), 4);
  EXPECT_EQ(DevicesOfNic(2, 8), 2);
  EXPECT_EQ(DevicesOfNic(3, 8), 1);
  EXPECT_EQ(DevicesOfNic(9, 8), 1);
  EXPECT_EQ(DevicesOfNic(0, 8), 1);
  EXPECT_EQ(DevicesOfNic(1, 4), 1);
}

}  // namespace
}  // namespace nccltune::net
