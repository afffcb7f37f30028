// SPDX-License-Identifier: Apache-2.0
#include "net/pool_size.h"

#include <gtest/gtest.h>

#include "net/kernel_facts.h"

namespace nccltune::net {
namespace {

TEST(PoolThreads, AreThreeOfFourCpusWithinBounds) {
  const NetSettings automatic;
  EXPECT_EQ(PoolThreads(automatic, 1), 2);
  EXPECT_EQ(PoolThreads(automatic, 11), 8);
  EXPECT_EQ(PoolThreads(automatic, 26), 19);
  EXPECT_EQ(PoolThreads(automatic, 64), 24);
  EXPECT_EQ(PoolThreads(automatic, 384), 24);
  EXPECT_EQ(PoolThreads(automatic), PoolThreads(automatic, UsableCpus()));
}

TEST(PoolThreads, AreWhatIsSet) {
  NetSettings settings;
  settings.threads = 1;
  EXPECT_EQ(PoolThreads(settings, 384), 1);
  settings.threads = 64;
  EXPECT_EQ(PoolThreads(settings), 64);
}

TEST(FlowsOf, AreAsManyAsThreadsWithinBounds) {
  const NetSettings automatic;
  EXPECT_EQ(FlowsOf(automatic, 1), 2);
  EXPECT_EQ(FlowsOf(automatic, 6), 6);
  EXPECT_EQ(FlowsOf(automatic, 16), 8);
  NetSettings settings;
  settings.flows = 12;
  EXPECT_EQ(FlowsOf(settings, 2), 12);
}

}  // namespace
}  // namespace nccltune::net
