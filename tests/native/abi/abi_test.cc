// SPDX-License-Identifier: Apache-2.0
// The headers check their sizes and offsets with static_assert. These tests include all versions
// together, and check the numbers of the names that NCCL prints or reads, and what NCCL casts or
// converts between versions.
#include "abi/net.h"
#include "abi/tuner.h"
#include "testing.h"

namespace nccltune::abi {
namespace {

TEST(NetAbi, WhatNcclCastsBetweenVersions) {
  // NCCL passes v12's list of members unchanged to makeVDevice of v9 to v11.
  EXPECT_EQ(offsetof(NetVDeviceOf4, count), offsetof(NetVDeviceOf8, count));
  EXPECT_EQ(offsetof(NetVDeviceOf4, devices), offsetof(NetVDeviceOf8, devices));
  // NCCL copies these functions unchanged from the plugin's table into its newest one.
  EXPECT_TRUE((std::is_same_v<decltype(NetV6::test), decltype(NetV12::test)>));
  EXPECT_TRUE((std::is_same_v<decltype(NetV6::iflush), decltype(NetV12::iflush)>));
  EXPECT_TRUE((std::is_same_v<decltype(NetV7::accept), decltype(NetV12::accept)>));
  EXPECT_TRUE((std::is_same_v<decltype(NetV8::reg_mr), decltype(NetV12::reg_mr)>));
  EXPECT_TRUE((std::is_same_v<decltype(NetV10::isend), decltype(NetV12::isend)>));
  EXPECT_TRUE((std::is_same_v<decltype(NetV10::irecv), decltype(NetV12::irecv)>));
  EXPECT_TRUE((std::is_same_v<decltype(NetV11::init), decltype(NetV12::init)>));
}

TEST(NetAbi, NumbersOfNcclsConstants) {
  EXPECT_EQ(kNetHandleBytes, 128U);
  EXPECT_EQ(kNetMaxRequests, 32);
  EXPECT_EQ(kNetOptionalReceiveCompletion, 1U);
  EXPECT_EQ(kNetLargestMessage, 1024ULL * 1024 * 1024 * 1024);
  EXPECT_EQ(kPointerHost, 1);
  EXPECT_EQ(kPointerCuda, 2);
  EXPECT_EQ(kPointerDmaBuf, 4);
  EXPECT_EQ(static_cast<int>(kNetDeviceUnpack), 1);
  EXPECT_EQ(kSubsysNet, 0x10UL);
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
