// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/team.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

using std::chrono::seconds;

TEST(Team, EachMemberDoesTheTaskInAThreadOfItsOwn) {
  Team team(3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> members = 0;
    ASSERT_TRUE(team.Run(
        [&](size_t member) {
          members += 1 << member;
          const std::lock_guard<std::mutex> lock(mutex);
          threads.insert(std::this_thread::get_id());
        },
        Team::Clock::now() + seconds(20)));
    ASSERT_EQ(members, 7);
  }
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0U);
}

TEST(Team, TheDeadlineNamesTheStuckMember) {
  std::atomic<bool> stop = false;
  Team team(3);
  const auto task = [&stop](size_t member) {
    while (member == 1 && !stop) std::this_thread::yield();
  };
  EXPECT_FALSE(team.Run(task, Team::Clock::now() + std::chrono::milliseconds(50)));
  EXPECT_FALSE(team.WaitIdle(std::chrono::milliseconds(10)));
  EXPECT_EQ(team.FirstBusy(), 1U);
  stop = true;
  EXPECT_TRUE(team.WaitIdle(seconds(20)));
  EXPECT_EQ(team.FirstBusy(), 3U);
}

TEST(Team, HurryEndsARunLongBeforeItsDeadline) {
  std::atomic<bool> stop = false;
  Team team(2);
  const auto task = [&](size_t member) {
    if (member == 0) team.EndSoon();
    while (member == 1 && !stop) std::this_thread::yield();
  };
  const Team::Clock::time_point start = Team::Clock::now();
  EXPECT_FALSE(team.Run(task, start + seconds(600)));
  EXPECT_LT(Team::Clock::now() - start, seconds(100));
  stop = true;
  EXPECT_TRUE(team.WaitIdle(seconds(20)));
}

TEST(Team, AStuckThreadIsLeftToItself) {
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  const auto over = std::make_shared<std::atomic<bool>>(false);
  {
    Team team(2);
    const auto task = [stop, over](size_t member) {
      while (member == 1 && !*stop) std::this_thread::yield();
      if (member == 1) *over = true;
    };
    EXPECT_FALSE(team.Run(task, Team::Clock::now() + std::chrono::milliseconds(20)));
  }
  *stop = true;
  while (!*over) std::this_thread::yield();
}

}  // namespace
}  // namespace nccltune::bench
