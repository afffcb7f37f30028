// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/group.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "sendrecv/world.h"

namespace nccltune::sendrecv {
namespace {

// Sanitizers take ten times as long and find what they find in a few programs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kFewer = 4;
#else
constexpr uint64_t kFewer = 1;
#endif

Program Of(size_t ranks, std::vector<Sent> messages, std::vector<std::vector<Step>> steps,
           size_t streams = 1) {
  return {.ranks = ranks,
          .streams = streams,
          .messages = std::move(messages),
          .steps = std::move(steps)};
}

Step One(Role role, size_t message, size_t stream = 0) {
  return {.stream = stream, .calls = {{.role = role, .message = message}}};
}

constexpr Role kSend = Role::kSender;
constexpr Role kReceive = Role::kReceiver;
constexpr uint64_t kSmall = kEagerLimit;
constexpr uint64_t kLarge = 2 * kEagerLimit;

// The program ends well in whatever order all goes on; told is how its messages went.
std::map<Path, size_t> RunOften(const Program& program) {
  std::map<Path, size_t> paths;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Ran ran = RunProgram(program, random, 1);
    EXPECT_TRUE(ran.over) << "seed " << seed << "\n" << ran.trouble;
    EXPECT_EQ(ran.trouble, "") << "seed " << seed;
    if (testing::Test::HasFailure()) break;
    for (const auto& [path, count] : ran.paths) paths[path] += count;
  }
  return paths;
}

TEST(Group, OneMessage) {
  for (const uint64_t bytes : {kSmall, kLarge}) {
    const auto paths = RunOften(Of(2, {{0, 0, 1, bytes}}, {{One(kSend, 0)}, {One(kReceive, 0)}}));
    EXPECT_NE(paths.count(Path::kPushed), 0U);
    EXPECT_EQ(paths.count(Path::kStaged) != 0, bytes == kSmall);
    EXPECT_EQ(paths.count(Path::kPulled) != 0, bytes == kLarge);
  }
}

// The staging memory is in the peer's reach from the second time on.
TEST(Group, WhatIsSentAheadIsFetched) {
  const std::vector<Sent> messages(5, {0, 0, 1, kSmall});
  std::vector<std::vector<Step>> steps(2);
  for (size_t i = 0; i < messages.size(); ++i) {
    steps[0].push_back(One(kSend, i));
    steps[1].push_back(One(kReceive, i));
  }
  const auto paths = RunOften(Of(2, messages, steps));
  EXPECT_GT(paths.at(Path::kPulled), 50U);
  EXPECT_GE(paths.at(Path::kStaged), paths.at(Path::kPulled));
}

TEST(Group, ARing) {
  const std::vector<Sent> messages = {{0, 0, 1, kSmall}, {0, 1, 2, kSmall}, {0, 2, 0, kLarge}};
  std::vector<std::vector<Step>> steps;
  for (size_t rank = 0; rank < 3; ++rank) {
    steps.push_back({{.stream = 0, .calls = {{kSend, rank}, {kReceive, (rank + 2) % 3}}}});
  }
  const auto paths = RunOften(Of(3, messages, steps));
  EXPECT_EQ(paths.count(Path::kNative), 0U) << "a group with receives may always wait";
  EXPECT_NE(paths.count(Path::kPulled), 0U);
}

// VCCL hangs in these: two communicators, one stream or two, in opposite orders where NCCL's
// buffers let a send go on.
TEST(Group, TwoCommunicatorsInOppositeOrderOnOneStream) {
  RunOften(Of(2, {{0, 0, 1, kSmall}, {1, 0, 1, kSmall}},
              {{One(kSend, 0), One(kSend, 1)}, {One(kReceive, 1), One(kReceive, 0)}}));
}

TEST(Group, TwoCommunicatorsInOppositeOrderOnTwoStreams) {
  RunOften(Of(2, {{0, 0, 1, kLarge}, {1, 0, 1, kLarge}},
              {{One(kSend, 0, 0), One(kSend, 1, 1)}, {One(kReceive, 1, 1), One(kReceive, 0, 0)}},
              2));
}

TEST(Group, BothSendBeforeTheyReceive) {
  RunOften(Of(2, {{0, 0, 1, kSmall}, {0, 1, 0, kSmall}},
              {{One(kSend, 0), One(kReceive, 1)}, {One(kSend, 1), One(kReceive, 0)}}));
}

// The second receive is there before the first, in a stream of its own.
TEST(Group, ASendDoesNotWaitForTheReceiveOfTheOneBefore) {
  RunOften(Of(2, {{0, 0, 1, kSmall}, {0, 0, 1, kSmall}, {1, 0, 1, kLarge}},
              {{{.stream = 0, .calls = {{kSend, 0}, {kSend, 1}}}, One(kSend, 2)},
               {One(kReceive, 2), One(kReceive, 0), One(kReceive, 1, 1)}},
              2));
}

TEST(Group, FromACapturedMessageOnNcclCarriesAll) {
  std::vector<Sent> messages(6, {0, 0, 1, kLarge});
  messages[2].captured = true;
  std::vector<std::vector<Step>> steps(2);
  for (size_t i = 0; i < messages.size(); ++i) {
    steps[0].push_back(One(kSend, i));
    steps[1].push_back(One(kReceive, i));
  }
  const auto paths = RunOften(Of(2, messages, steps));
  EXPECT_EQ(paths.at(Path::kNative), 200U * 2 * 4);
}

TEST(Group, MoreMessagesThanSlots) {
  std::vector<Sent> messages;
  std::vector<std::vector<Step>> steps(2);
  for (size_t i = 0; i < LaneMemory::kSlots + 300; ++i) {
    messages.push_back({0, 0, 1, kFloor});
    steps[0].push_back(One(kSend, i));
    steps[1].push_back(One(kReceive, i));
  }
  Random random(1);
  const Ran ran = RunProgram(Of(2, messages, steps), random, 1);
  EXPECT_TRUE(ran.over);
  EXPECT_EQ(ran.trouble, "");
}

TEST(Group, MoreMessagesInAGroupThanSlots) {
  std::vector<Sent> messages;
  std::vector<std::vector<Step>> steps(2, {{.stream = 0, .calls = {}}});
  for (size_t i = 0; i < LaneMemory::kSlots + 100; ++i) {
    messages.push_back({.comm = 0, .from = 0, .to = 1, .bytes = kFloor});
    steps[0][0].calls.push_back({kSend, i});
    steps[1][0].calls.push_back({kReceive, i});
  }
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Random random(seed);
    const Ran ran = RunProgram(Of(2, messages, steps), random, 1);
    EXPECT_TRUE(ran.over) << ran.trouble;
    EXPECT_EQ(ran.trouble, "");
    EXPECT_GE(ran.paths.at(Path::kNative), LaneMemory::kSlots / 2);
  }
}

TEST(Group, RandomProgramsEndWell) {
  std::map<Path, size_t> paths;
  for (uint64_t seed = 0; seed < 600 / kFewer; ++seed) {
    Random random(seed);
    const Program program = RandomProgram(random, 4 + random() % 25, false, kKind);
    const Ran ran = RunProgram(program, random, 0.8);
    ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
    ASSERT_EQ(ran.trouble, "") << "seed " << seed;
    for (const auto& [path, count] : ran.paths) paths[path] += count;
  }
  for (const Path path : {Path::kNative, Path::kPushed, Path::kStaged, Path::kPulled}) {
    EXPECT_GT(paths[path], 100U / kFewer) << static_cast<int>(path);
  }
}

TEST(Group, RandomProgramsThroughBuffersEndWell) {
  std::map<Path, size_t> paths;
  for (uint64_t seed = 0; seed < 400 / kFewer; ++seed) {
    Random random(seed);
    const Program program = RandomProgram(random, 4 + random() % 25, false, kKind);
    const Ran ran = RunProgram(program, random, 0.8, kThroughBuffers);
    ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
    ASSERT_EQ(ran.trouble, "") << "seed " << seed;
    for (const auto& [path, count] : ran.paths) paths[path] += count;
  }
  EXPECT_GT(paths[Path::kNative], 100U / kFewer);
  EXPECT_GT(paths[Path::kFifo], 1000U / kFewer);
  EXPECT_EQ(paths[Path::kPushed] + paths[Path::kPulled] + paths[Path::kStaged], 0U);
}

// Messages under capture are copied where both sides are in time, and others go on beside them.
TEST(Group, RandomProgramsWithGraphsEndWell) {
  size_t native = 0;
  size_t without = 0;
  for (uint64_t seed = 0; seed < 400 / kFewer; ++seed) {
    Random random(seed);
    Program program = RandomProgram(random, 4 + random() % 25, false, kKind);
    for (Sent& each : program.messages) each.captured = random() % 4 == 0;
    for (const Policy& policy : {kWithGraphs, kCopies}) {
      Random same(seed);
      const Ran ran = RunProgram(program, same, 0.9, policy);
      ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
      ASSERT_EQ(ran.trouble, "") << "seed " << seed;
      const auto found = ran.paths.find(Path::kNative);
      if (found != ran.paths.end()) (policy.graphs ? native : without) += found->second;
    }
  }
  EXPECT_LT(native, without * 24 / 25);
}

TEST(Group, RandomProgramsInPiecesEndWell) {
  for (uint64_t seed = 0; seed < 200 / kFewer; ++seed) {
    Random random(seed);
    Policy policy = seed % 2 == 0 ? kCopies : kWithGraphs;
    policy.piece = 100 + random() % 1000;
    Program program = RandomProgram(random, 4 + random() % 25, false, kKind);
    for (Sent& each : program.messages) each.captured = policy.graphs && random() % 4 == 0;
    const Ran ran = RunProgram(program, random, 0.8, policy);
    ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
    ASSERT_EQ(ran.trouble, "") << "seed " << seed;
  }
}

// Programs that NCCL carries through thanks to its buffers, as nobody promises.
TEST(Group, WhatEndsWithNcclEndsWithUs) {
  size_t ended = 0;
  for (uint64_t seed = 0; seed < 1200 / kFewer; ++seed) {
    Random random(seed);
    const Program program = RandomProgram(random, 4 + random() % 12, true, kKind);
    // In any order: what hangs now and then is no program to promise anything for.
    bool well = true;
    for (int i = 0; well && i < 3; ++i) well = RunProgram(program, random, 0).over;
    if (!well) continue;
    ++ended;
    const Ran ran = RunProgram(program, random, 0.9);
    ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
    ASSERT_EQ(ran.trouble, "") << "seed " << seed;
  }
  EXPECT_GT(ended, 150U / kFewer);
}

TEST(Group, ByThreads) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const Program program = RandomProgram(random, 30, false, kKind);
    for (const Policy& policy : {kCopies, kThroughBuffers, kWithGraphs}) {
      const Ran ran = RunProgramByThreads(program, seed, 0.8, policy);
      ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
      ASSERT_EQ(ran.trouble, "") << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
