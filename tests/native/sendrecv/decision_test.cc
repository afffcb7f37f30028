// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/decision.h"

#include <gtest/gtest.h>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr Policy kPolicy = {.eager_limit = 64 * kMiB, .loose = false};
constexpr Policy kLoose = {.eager_limit = 64 * kMiB, .loose = true};
constexpr Circumstances kSmallAlone = {
    .bytes = 64 * kMiB, .possible = true, .group_receives = false};
constexpr Circumstances kLargeAlone = {
    .bytes = 64 * kMiB + 1, .possible = true, .group_receives = false};
constexpr Circumstances kStagingInReach = {
    .bytes = 64 * kMiB, .possible = true, .group_receives = false, .staging = true};
constexpr Circumstances kInGroup = {.bytes = kMiB, .possible = true, .group_receives = true};
constexpr Circumstances kImpossible = {
    .bytes = 512 * kMiB, .possible = false, .group_receives = true};

TEST(Decision, AReceiverThatIsFirstHasItPushed) {
  for (const Circumstances& each : {kSmallAlone, kLargeAlone, kInGroup}) {
    EXPECT_EQ(FirstDecides(Role::kReceiver, each, kPolicy), Verdict::kPush);
  }
}

TEST(Decision, ASenderThatIsFirstHasItPulledWhereItMayWait) {
  EXPECT_EQ(FirstDecides(Role::kSender, kLargeAlone, kPolicy), Verdict::kPull);
  EXPECT_EQ(FirstDecides(Role::kSender, kInGroup, kPolicy), Verdict::kPull);
  EXPECT_EQ(FirstDecides(Role::kSender, kSmallAlone, kPolicy), Verdict::kNative);
  EXPECT_EQ(FirstDecides(Role::kSender, kSmallAlone, kLoose), Verdict::kPull);
}

TEST(Decision, ASenderThatIsFirstLeavesWhatThePeerCanFetch) {
  EXPECT_EQ(FirstDecides(Role::kSender, kStagingInReach, kPolicy), Verdict::kFetch);
  EXPECT_EQ(FirstDecides(Role::kSender, kStagingInReach, kLoose), Verdict::kPull);
  Circumstances impossible = kStagingInReach;
  impossible.possible = false;
  EXPECT_EQ(FirstDecides(Role::kSender, impossible, kPolicy), Verdict::kNative);
}

TEST(Decision, WhatIsNotPossibleIsNative) {
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    EXPECT_EQ(FirstDecides(role, kImpossible, kLoose), Verdict::kNative);
  }
}

TEST(Decision, ASendAloneDoesNotWaitForWhatNcclWouldNotWaitFor) {
  EXPECT_EQ(HowToSend(false, kSmallAlone, kPolicy), Sending::kStaged);
  EXPECT_EQ(HowToSend(true, kSmallAlone, kPolicy), Sending::kDirect);
  EXPECT_EQ(HowToSend(false, kLargeAlone, kPolicy), Sending::kDirect);
  EXPECT_EQ(HowToSend(false, kInGroup, kPolicy), Sending::kDirect);
  EXPECT_EQ(HowToSend(false, kSmallAlone, kLoose), Sending::kDirect);
}

TEST(Decision, ThroughBuffersWhoeverComesFirst) {
  const Policy policy = {.fifo = true};
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    EXPECT_EQ(FirstDecides(role, kInGroup, policy), Verdict::kFifo);
    EXPECT_EQ(FirstDecides(role, kImpossible, policy), Verdict::kNative);
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
