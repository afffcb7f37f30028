// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/segment.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "sendrecv/cuda_api.h"
#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

std::string Key(const char* name) { return std::string(name) + " " + std::to_string(getpid()); }

// Of a process of its own; its exit status, or the signal below zero.
template <typename Body>
int InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Segment, IsOneForAProcess) {
  std::string why;
  const auto one = Segment::Open(Key("one"), &why);
  ASSERT_NE(one, nullptr) << why;
  EXPECT_EQ(Segment::Open(Key("one"), &why), one);
  EXPECT_NE(Segment::Open(Key("other"), &why), one);
  one->Unlink();
  Segment::Open(Key("other"), &why)->Unlink();
}

TEST(Segment, GivesEachRankAPlaceUntilThereAreNone) {
  std::string why;
  const auto segment = Segment::Open(Key("places"), &why);
  ASSERT_NE(segment, nullptr) << why;
  segment->Unlink();
  for (size_t i = 0; i < kMostLocal; ++i) EXPECT_EQ(segment->Join(&why), i) << why;
  EXPECT_FALSE(segment->Join(&why).has_value());
  EXPECT_EQ(why, "more than 64 ranks on this host");
  EXPECT_EQ(segment->places(), kMostLocal);
}

TEST(Segment, KnowsWhoLives) {
  std::string why;
  const std::string key = Key("lives");
  const auto segment = Segment::Open(key, &why);
  ASSERT_NE(segment, nullptr) << why;
  int ways[2];
  ASSERT_EQ(pipe(ways), 0);
  const pid_t child = fork();
  if (child == 0) {
    // A process does not have the locks of the one that it comes from, nor its segments.
    std::string problem;
    const auto mine = Segment::Open(key, &problem);
    const auto place = mine->Join(&problem);
    mine->memory().cards[*place].state.store(Card::kHere);
    const char done = 'd';
    if (write(ways[1], &done, 1) != 1) _exit(1);
    pause();
  }
  char done = 0;
  ASSERT_EQ(read(ways[0], &done, 1), 1);
  EXPECT_TRUE(segment->Lives(0));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(segment->Lives(0));
  // Who has left as it should is not missed.
  segment->memory().cards[0].state.store(Card::kLeft);
  EXPECT_TRUE(segment->Lives(0));
  segment->Unlink();
  close(ways[0]);
  close(ways[1]);
}

TEST(Segment, LeavesNoFileBehind) {
  std::string why;
  auto segment = Segment::Open(Key("file"), &why);
  ASSERT_NE(segment, nullptr) << why;
  const std::string file = "/dev/shm" + std::string(segment->name());
  EXPECT_TRUE(std::filesystem::exists(file)) << file;
  segment->Unlink();
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(segment->Join(&why).has_value()) << "who has it open has it on";
}

TEST(Segment, ALaneIsThereForBothSides) {
  soft::UseGpu(0);
  std::string why;
  const cu::Api* const api = cu::Open(&why);
  ASSERT_NE(api, nullptr) << why;
  const auto driver = CudaDriver::OfCurrent(*api, &why);
  ASSERT_NE(driver, nullptr) << why;
  const auto segment = Segment::Open(Key("lane"), &why);
  ASSERT_NE(segment, nullptr) << why;
  segment->Unlink();
  bool failed = false;
  const Segment::LanePlace lane = segment->Lane(*driver, 3, 5, &failed);
  ASSERT_NE(lane.memory, nullptr);
  EXPECT_FALSE(failed);
  EXPECT_EQ(segment->Lane(*driver, 3, 5, &failed).memory, lane.memory);
  EXPECT_NE(segment->Lane(*driver, 5, 3, &failed).memory, lane.memory);
  EXPECT_EQ(segment->memory().lanes[3 * kMostLocal + 5].load(), SegmentMemory::kThere);
  LaneEnd(*lane.memory, Role::kSender).Break();
  EXPECT_TRUE(LaneEnd(*lane.memory, Role::kReceiver).broken());
}

TEST(Segment, FilesThatMayNotBeSoLargeAreNoSignal) {
  EXPECT_EQ(InChild([] {
              const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
              setrlimit(RLIMIT_FSIZE, &small);
              std::string why;
              const bool refused = Segment::Open(Key("limit"), &why) == nullptr;
              return refused && why.find("ulimit -f") != std::string::npos ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace nccltune::sendrecv
