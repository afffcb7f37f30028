// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/plan.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace nccltune::sendrecv {
namespace {

constexpr DeviceAddress kBase = 0x1000;

std::optional<Staging::Region> Take(Staging& staging, uint64_t bytes, Flag& done, uint32_t value) {
  const auto room = staging.Find(bytes);
  if (room) staging.Take(*room, done, value);
  return room;
}

TEST(Staging, ALaterSendWaitsForTheOneInItsPlace) {
  Staging staging(kBase, 4096);
  std::array<Flag, 5> done = {};
  auto room = Take(staging, 2048, done[0], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  EXPECT_TRUE(room->wait_for.empty());
  room = Take(staging, 1024, done[1], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->wait_for.empty());
  // The 1,024 bytes at the end of the ring are too few.
  room = Take(staging, 2048, done[2], 7);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  ASSERT_EQ(room->wait_for.size(), 1U);
  EXPECT_EQ(room->wait_for[0].done, done.data());
  EXPECT_EQ(room->wait_for[0].value, 1U);
  done[1] = 1;
  room = Take(staging, 2048, done[3], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->wait_for.empty()) << "its bytes are there";
  room = Take(staging, 4096, done[4], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->wait_for.size(), 2U) << "all of it";
}

TEST(Staging, NobodyWaitsForWhoWentWithout) {
  Staging staging(kBase, 4096);
  Flag done = 0;
  ASSERT_TRUE(staging.Find(3072));
  auto room = Take(staging, 2048, done, 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  ASSERT_EQ(staging.Find(4096)->wait_for.size(), 1U);
  room = staging.Find(2048);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->wait_for.empty());
}

TEST(Staging, WhatIsTooLargeHasNoRoomEver) {
  Staging staging(kBase, 4096);
  Flag done = 0;
  EXPECT_FALSE(Take(staging, 4097, done, 1));
  EXPECT_TRUE(Take(staging, 4096, done, 1));
}

TEST(Staging, NeverGivesAPlaceTwice) {
  struct MessageTransfer {
    DeviceAddress begin = 0;
    uint64_t bytes = 0;
    size_t flag = 0;
  };
  constexpr uint64_t kCapacity = 1 << 16;
  Staging staging(kBase, kCapacity);
  std::vector<Flag> done(2000);
  std::vector<MessageTransfer> held;
  std::mt19937 draw(7);
  size_t waited = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    const uint64_t bytes = 1 + draw() % (kCapacity / 3);
    const auto room = Take(staging, bytes, done[i], 1);
    ASSERT_TRUE(room);
    ASSERT_GE(room->at, kBase);
    ASSERT_LE(room->at + bytes, kBase + kCapacity);
    for (const Staging::Completion& other : room->wait_for) {
      ++waited;
      std::erase_if(held,
                    [&](const MessageTransfer& each) { return &done[each.flag] == other.done; });
    }
    std::erase_if(held, [&](const MessageTransfer& each) { return done[each.flag] == 1; });
    for (const MessageTransfer& other : held) {
      ASSERT_TRUE(room->at + bytes <= other.begin || other.begin + other.bytes <= room->at);
    }
    held.push_back({room->at, bytes, i});
    // The messages complete in any order.
    if (draw() % 2 == 0) done[held[draw() % held.size()].flag] = 1;
  }
  EXPECT_GT(waited, done.size() / 10);
}

}  // namespace
}  // namespace nccltune::sendrecv
