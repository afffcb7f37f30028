// SPDX-License-Identifier: Apache-2.0
#include "net/zero_copy_choice.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace nccltune::net {
namespace {

using State = ZeroCopyChoice::State;

constexpr size_t kLarge = 128 << 10;

TEST(ZeroCopyChoice, OffIsOff) {
  ZeroCopyChoice choice(ZeroCopyMode::kOff);
  EXPECT_FALSE(choice.Wants(kLarge, 0));
  choice.NewSocket();
  EXPECT_EQ(choice.state(), State::kOff);
}

TEST(ZeroCopyChoice, OneSendIsTriedUntilTheKernelReportsIt) {
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  EXPECT_FALSE(choice.Wants(kLeastUncopied - 1, 0));
  EXPECT_TRUE(choice.Wants(kLeastUncopied, 0));
  EXPECT_FALSE(choice.Wants(kLarge, 1));
  choice.Reported(false);
  EXPECT_EQ(choice.state(), State::kKept);
  EXPECT_TRUE(choice.Wants(kLarge, 1000));
  EXPECT_FALSE(choice.Wants(kLeastUncopied - 1, 0));
}

TEST(ZeroCopyChoice, ACopyEndsItForGood) {
  for (const bool kept_before : {false, true}) {
    ZeroCopyChoice choice(ZeroCopyMode::kAuto);
    if (kept_before) choice.Reported(false);
    choice.Reported(true);
    EXPECT_EQ(choice.state(), State::kDropped);
    choice.Reported(false);
    choice.NewSocket();
    EXPECT_EQ(choice.state(), State::kDropped);
    EXPECT_FALSE(choice.Wants(kLarge, 0));
  }
}

TEST(ZeroCopyChoice, WhatMakesRequestsWaitTwiceInAMinuteEndsItForGood) {
  constexpr int64_t kSecond = 1'000'000'000;
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  choice.Reported(false);
  for (const int64_t second : {0, 60, 200}) {
    choice.HeldTooLong(second * kSecond);
    EXPECT_EQ(choice.state(), State::kKept) << second;
  }
  choice.HeldTooLong(259 * kSecond);
  EXPECT_EQ(choice.state(), State::kDropped);
}

TEST(ZeroCopyChoice, AnotherSocketIsTriedAnew) {
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  choice.Reported(false);
  choice.NewSocket();
  EXPECT_EQ(choice.state(), State::kTrial);
  EXPECT_FALSE(choice.Wants(kLarge, 1));
}

TEST(ZeroCopyChoice, AlwaysMindsNoCopiesButARefusal) {
  ZeroCopyChoice choice(ZeroCopyMode::kAlways);
  EXPECT_TRUE(choice.Wants(kLarge, 1000));
  choice.Reported(true);
  choice.HeldTooLong(1);
  choice.HeldTooLong(2);
  choice.NewSocket();
  EXPECT_EQ(choice.state(), State::kKept);
  EXPECT_FALSE(choice.Wants(kLeastUncopied - 1, 0));
  choice.Refused(EPERM, 3);
  EXPECT_EQ(choice.state(), State::kDropped);
}

TEST(ZeroCopyChoice, RoomForNoMoreIsLearned) {
  ZeroCopyChoice choice(ZeroCopyMode::kAuto);
  choice.Reported(false);
  choice.Refused(ENOBUFS, 30);
  EXPECT_EQ(choice.state(), State::kKept);
  EXPECT_FALSE(choice.Wants(kLarge, 30));
  EXPECT_TRUE(choice.Wants(kLarge, 29));
  choice.Refused(ENOBUFS, 20);
  EXPECT_FALSE(choice.Wants(kLarge, 20));
  // The limit is exceeded although no send is outstanding: zero-copy is dropped.
  choice.Refused(ENOBUFS, 0);
  EXPECT_EQ(choice.state(), State::kDropped);
}

TEST(ZeroCopyChoice, ARefusalIsNoEndOfTheConnection) {
  for (const int error :
       {ENOBUFS, ENOMEM, EPERM, EACCES, EFAULT, EINVAL, EOPNOTSUPP, ENOPROTOOPT}) {
    EXPECT_TRUE(ZeroCopyChoice::Refuses(error)) << error;
  }
  for (const int error : {EAGAIN, EPIPE, ECONNRESET, ETIMEDOUT, EHOSTUNREACH, EBADF}) {
    EXPECT_FALSE(ZeroCopyChoice::Refuses(error)) << error;
  }
}

}  // namespace
}  // namespace nccltune::net
