// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/staging.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace nccltune::sendrecv {
namespace {

constexpr DeviceAddress kBase = 0x1000;

TEST(Staging, WhoComesLaterWaitsForWhoeverIsInItsPlace) {
  Staging staging(kBase, 4096);
  std::array<Flag, 5> done = {};
  auto room = staging.Take(2048, done[0], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  EXPECT_TRUE(room->before.empty());
  room = staging.Take(1024, done[1], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->before.empty());
  // 1,024 bytes are left at the end, which are not enough.
  room = staging.Take(2048, done[2], 7);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  ASSERT_EQ(room->before.size(), 1U);
  EXPECT_EQ(room->before[0].done, done.data());
  EXPECT_EQ(room->before[0].value, 1U);
  done[1] = 1;
  room = staging.Take(2048, done[3], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->before.empty()) << "its bytes are there";
  room = staging.Take(4096, done[4], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->before.size(), 2U) << "all of it";
}

TEST(Staging, WhatIsTooLargeHasNoRoomEver) {
  Staging staging(kBase, 4096);
  Flag done = 0;
  EXPECT_FALSE(staging.Take(4097, done, 1));
  EXPECT_TRUE(staging.Take(4096, done, 1));
}

TEST(Staging, NeverGivesAPlaceTwice) {
  struct Part {
    DeviceAddress begin = 0;
    uint64_t bytes = 0;
    size_t flag = 0;
  };
  constexpr uint64_t kCapacity = 1 << 16;
  Staging staging(kBase, kCapacity);
  std::vector<Flag> done(2000);
  std::vector<Part> held;
  std::mt19937 draw(7);
  size_t waited = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    const uint64_t bytes = 1 + draw() % (kCapacity / 3);
    const auto room = staging.Take(bytes, done[i], 1);
    ASSERT_TRUE(room);
    ASSERT_GE(room->at, kBase);
    ASSERT_LE(room->at + bytes, kBase + kCapacity);
    for (const Staging::Before& other : room->before) {
      ++waited;
      std::erase_if(held, [&](const Part& each) { return &done[each.flag] == other.done; });
    }
    std::erase_if(held, [&](const Part& each) { return done[each.flag] == 1; });
    for (const Part& other : held) {
      ASSERT_TRUE(room->at + bytes <= other.begin || other.begin + other.bytes <= room->at);
    }
    held.push_back({room->at, bytes, i});
    // They end in any order.
    if (draw() % 2 == 0) done[held[draw() % held.size()].flag] = 1;
  }
  EXPECT_GT(waited, done.size() / 10);
}

}  // namespace
}  // namespace nccltune::sendrecv
