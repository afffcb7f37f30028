// SPDX-License-Identifier: Apache-2.0
#include "tuner/rule_set.h"

#include <gtest/gtest.h>

#include "abi/tuner_types.h"
#include "tuner/config.h"

namespace nccltune::tuner {
namespace {

RuleCounts CountsOf(std::string_view content, Scale scale, bool tells_registered = true) {
  return RuleSet(ParseConfig(content).rules, scale, tells_registered).counts();
}

TEST(RuleSet, SortsOutOtherScales) {
  const RuleCounts counts = CountsOf(
      "allreduce,0,9,tree,ll,-1,4,32\n"   // this one
      "allreduce,0,9,ring,ll,-1,-1,32\n"  // any nodes
      "allreduce,0,9,nvls,ll,-1,4,-1\n"   // any ranks
      "allreduce,0,9,pat,ll,-1,2,32\n"    // other nodes
      "allreduce,0,9,pat,ll,-1,4,16\n",   // other ranks
      {4, 32});
  EXPECT_EQ(counts.total, 5U);
  EXPECT_EQ(counts.applied, 3U);
  EXPECT_EQ(counts.other_scale, 2U);
  EXPECT_EQ(counts.shadowed, 0U);
}

TEST(RuleSet, CountsWhatNoCallCanReach) {
  const RuleCounts counts = CountsOf(
      "allreduce,0,9,tree,ll,-1,-1,-1\n"
      "allreduce,2,7,tree,ll,8,-1,-1\n"      // same pair, covered
      "allreduce,5,12,tree,ll,8,-1,-1\n"     // reaches further
      "allgather,2,7,tree,ll,-1,-1,-1\n"     // another collective
      "allreduce,2,7,tree,ll,-1,-1,-1,2\n",  // another condition
      {1, 8});
  EXPECT_EQ(counts.shadowed, 1U);
  EXPECT_EQ(counts.applied, 4U);
  EXPECT_EQ(counts.with_channels, 1U);
}

TEST(RuleSet, CountsChunkSizesThatCanBeReached) {
  const RuleCounts counts = CountsOf(
      "allreduce,0,9,tree,ll,-1,-1,-1,-1,-1,4096\n"
      "allreduce,2,7,tree,ll,-1,-1,-1,-1,-1,8192\n"    // covered
      "allreduce,0,9,ring,ll,-1,4,32,-1,-1,4096\n"     // another scale
      "allreduce,0,9,ring,simple,-1,-1,-1,-1,-1,-1\n"  // none
      "allgather,0,9,ring,ll,-1,-1,-1,2,1,4096\n",
      {1, 8});
  EXPECT_EQ(counts.applied, 3U);
  EXPECT_EQ(counts.with_chunk, 2U);
}

TEST(RuleSet, RowsOnRegistrationNeedAnInterfaceThatPassesIt) {
  const char* const content =
      "allreduce,0,9,tree,ll,-1,-1,-1,-1,1\n"
      "allreduce,0,9,tree,ll,-1,-1,-1,-1,-1\n";
  EXPECT_EQ(CountsOf(content, {1, 8}, true).unknown_registration, 0U);
  EXPECT_EQ(CountsOf(content, {1, 8}, true).applied, 2U);
  EXPECT_EQ(CountsOf(content, {1, 8}, false).unknown_registration, 1U);
  EXPECT_EQ(CountsOf(content, {1, 8}, false).applied, 1U);
}

TEST(RuleSet, KnowsOnlyTheCollectivesOfATuner) {
  const RuleSet rules;
  EXPECT_NE(rules.TableOf(abi::kBroadcast), nullptr);
  EXPECT_NE(rules.TableOf(abi::kAllReduce), nullptr);
  EXPECT_EQ(rules.TableOf(5), nullptr);
  EXPECT_EQ(rules.TableOf(-1), nullptr);
}

}  // namespace
}  // namespace nccltune::tuner
