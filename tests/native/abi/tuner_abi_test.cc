// SPDX-License-Identifier: Apache-2.0
//
// The headers check themselves with static_assert. These tests include all versions together and
// check the numbers of the names that NCCL prints or reads.
#include <gtest/gtest.h>

#include "abi/tuner_types.h"
#include "abi/tuner_v2.h"
#include "abi/tuner_v3.h"
#include "abi/tuner_v4.h"
#include "abi/tuner_v5.h"
#include "abi/tuner_v6.h"
#include "abi/tuner_v7.h"

namespace nccltune::abi {
namespace {

TEST(TunerAbi, SizesOfEveryVersion) {
  EXPECT_EQ(sizeof(TunerV2), 32U);
  EXPECT_EQ(sizeof(TunerV3), 32U);
  EXPECT_EQ(sizeof(TunerV4), 32U);
  EXPECT_EQ(sizeof(TunerV5), 32U);
  EXPECT_EQ(sizeof(TunerV6), 40U);
  EXPECT_EQ(sizeof(TunerV7), 40U);
  EXPECT_EQ(sizeof(NvlDomainInfoV5), 12U);
  EXPECT_EQ(sizeof(TunerConstantsV5), 1152U);
  EXPECT_EQ(sizeof(TunerConstantsV6), 1152U);
  EXPECT_EQ(sizeof(TunerConstantsV7), 1272U);
}

TEST(TunerAbi, ConstantsGrowOnlyAfterTheirLatencies) {
  // NCCL 2.32 converts between v6 and v7: everything before the first bandwidth table is shared.
  EXPECT_EQ(offsetof(TunerConstantsV5, ll_max_bws), offsetof(TunerConstantsV7, ll_max_bws));
  EXPECT_EQ(sizeof(TunerConstantsV7) - sizeof(TunerConstantsV5), 5 * kNumTuningScales * 8U);
}

TEST(TunerAbi, NumbersOfNcclsEnumerations) {
  EXPECT_EQ(static_cast<int>(kBroadcast), 0);
  EXPECT_EQ(static_cast<int>(kAllReduce), kNumCollectives - 1);
  EXPECT_EQ(static_cast<int>(kTree), 0);
  EXPECT_EQ(static_cast<int>(kPat), kNumAlgorithms - 1);
  EXPECT_EQ(static_cast<int>(kLl), 0);
  EXPECT_EQ(static_cast<int>(kSimple), kNumProtocols - 1);
  EXPECT_EQ(static_cast<int>(kLogWarn), 2);
  EXPECT_EQ(static_cast<int>(kLogInfo), 3);
  EXPECT_EQ(kSubsysTuning, 0x40UL);
}

}  // namespace
}  // namespace nccltune::abi
