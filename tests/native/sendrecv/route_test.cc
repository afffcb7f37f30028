// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/route.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr Policy kPolicy = {.eager_limit = 64 * kMiB, .sends_may_wait = false};
constexpr Policy kLoose = {.eager_limit = 64 * kMiB, .sends_may_wait = true};
constexpr MessageConditions kSmallAlone = {
    .bytes = 64 * kMiB, .can_copy = true, .group_receives = false};
constexpr MessageConditions kLargeAlone = {
    .bytes = 64 * kMiB + 1, .can_copy = true, .group_receives = false};
constexpr MessageConditions kStagingInReach = {
    .bytes = 64 * kMiB, .can_copy = true, .group_receives = false, .staging = true};
constexpr MessageConditions kInGroup = {.bytes = kMiB, .can_copy = true, .group_receives = true};
constexpr MessageConditions kImpossible = {
    .bytes = 512 * kMiB, .can_copy = false, .group_receives = true};

TEST(Decision, AReceiverThatIsFirstHasItPushed) {
  for (const MessageConditions& each : {kSmallAlone, kLargeAlone, kInGroup}) {
    EXPECT_EQ(DecideFirst(Role::kReceiver, each, kPolicy), MessageDecision::kPush);
  }
}

TEST(Decision, ASenderThatIsFirstHasItPulledWhereItMayWait) {
  EXPECT_EQ(DecideFirst(Role::kSender, kLargeAlone, kPolicy), MessageDecision::kPull);
  EXPECT_EQ(DecideFirst(Role::kSender, kInGroup, kPolicy), MessageDecision::kPull);
  EXPECT_EQ(DecideFirst(Role::kSender, kSmallAlone, kPolicy), MessageDecision::kNative);
  EXPECT_EQ(DecideFirst(Role::kSender, kSmallAlone, kLoose), MessageDecision::kPull);
}

TEST(Decision, ASenderThatIsFirstLeavesWhatThePeerCanFetch) {
  EXPECT_EQ(DecideFirst(Role::kSender, kStagingInReach, kPolicy), MessageDecision::kFetch);
  EXPECT_EQ(DecideFirst(Role::kSender, kStagingInReach, kLoose), MessageDecision::kPull);
  MessageConditions impossible = kStagingInReach;
  impossible.can_copy = false;
  EXPECT_EQ(DecideFirst(Role::kSender, impossible, kPolicy), MessageDecision::kNative);
}

TEST(Decision, WhatIsNotPossibleIsNative) {
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    EXPECT_EQ(DecideFirst(role, kImpossible, kLoose), MessageDecision::kNative);
  }
}

TEST(Decision, ASendAloneDoesNotWaitForWhatNcclWouldNotWaitFor) {
  EXPECT_EQ(ChooseSendMethod(false, kSmallAlone, kPolicy), SendMethod::kStaged);
  EXPECT_EQ(ChooseSendMethod(true, kSmallAlone, kPolicy), SendMethod::kDirect);
  EXPECT_EQ(ChooseSendMethod(false, kLargeAlone, kPolicy), SendMethod::kDirect);
  EXPECT_EQ(ChooseSendMethod(false, kInGroup, kPolicy), SendMethod::kDirect);
  EXPECT_EQ(ChooseSendMethod(false, kSmallAlone, kLoose), SendMethod::kDirect);
}

TEST(Decision, ThroughBuffersWhicheverSideIsFirst) {
  const Policy policy = {.vccl = true};
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    EXPECT_EQ(DecideFirst(role, kInGroup, policy), MessageDecision::kBuffered);
    EXPECT_EQ(DecideFirst(role, kImpossible, policy), MessageDecision::kNative);
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
