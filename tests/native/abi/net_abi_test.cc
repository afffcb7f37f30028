// SPDX-License-Identifier: Apache-2.0
//
// The headers check themselves with static_assert. These tests include all versions together and
// check that everything that NCCL 2.30 casts between versions has the same layout.
#include <gtest/gtest.h>

#include <type_traits>

#include "abi/net_types.h"
#include "abi/net_v10.h"
#include "abi/net_v11.h"
#include "abi/net_v12.h"
#include "abi/net_v6.h"
#include "abi/net_v7.h"
#include "abi/net_v8.h"
#include "abi/net_v9.h"

namespace nccltune::abi {
namespace {

TEST(NetAbi, SizesOfEveryVersion) {
  EXPECT_EQ(sizeof(NetV6), 136U);
  EXPECT_EQ(sizeof(NetV7), 152U);
  EXPECT_EQ(sizeof(NetV8), 152U);
  EXPECT_EQ(sizeof(NetV9), 160U);
  EXPECT_EQ(sizeof(NetV10), 160U);
  EXPECT_EQ(sizeof(NetV11), 176U);
  EXPECT_EQ(sizeof(NetV12), 176U);
  EXPECT_EQ(sizeof(NetPropertiesV6), 48U);
  EXPECT_EQ(sizeof(NetPropertiesV7), 56U);
  EXPECT_EQ(sizeof(NetPropertiesV8), 64U);
  EXPECT_EQ(sizeof(NetPropertiesV9), 104U);
  EXPECT_EQ(sizeof(NetPropertiesV10), 104U);
  EXPECT_EQ(sizeof(NetPropertiesV11), 112U);
  EXPECT_EQ(sizeof(NetPropertiesV12), 128U);
}

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
  EXPECT_EQ(static_cast<int>(kNetEventUpdateAndStop), 3);
  EXPECT_EQ(kSubsysNet, 0x10UL);
}

}  // namespace
}  // namespace nccltune::abi
