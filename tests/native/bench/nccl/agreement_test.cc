// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/agreement.h"
#include "bench/nccl/team.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

// An exchange in which this process is the first and `others` follow.
class Scripted : public ProcessExchange {
 public:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override {
    last = std::string(mine);
    all->assign({last});
    all->insert(all->end(), others.begin(), others.end());
    return !ending;
  }
  std::vector<std::string> others;
  std::string last;
  bool ending = false;
};

Introduction Process(const std::string& version, std::vector<std::string> gpus,
                     const std::string& host = "h") {
  return {std::nullopt, version, host, std::move(gpus), 90};
}

TEST(Agreement, AnIntroductionSurvivesARoundTrip) {
  Scripted exchange;
  Introduction mine = Process("2.28.9", {"a", "b"}, "0123");
  mine.error = OpenError{OpenError::Kind::kBadInput, "text", "hint", 3};
  std::vector<Introduction> all;
  ASSERT_TRUE(Introduce(&exchange, mine, &all));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].gpu_ids, mine.gpu_ids);
  EXPECT_EQ(all[0].compute_capability, 90);
  EXPECT_EQ(all[0].error->text, "text");
  EXPECT_EQ(all[0].error->kind, OpenError::Kind::kBadInput);
  EXPECT_EQ(all[0].error->rank, 3);
  exchange.others = {"damaged"};
  EXPECT_FALSE(Introduce(&exchange, mine, &all));
}

World WorldOf(int processes, int ranks_per_gpu = 1, int emulated_nodes = 0) {
  World world;
  world.processes = processes;
  world.ranks_per_gpu = ranks_per_gpu;
  world.emulated_nodes = emulated_nodes;
  return world;
}

TEST(Agreement, TheFirstProblemKeepsAllFromConnecting) {
  const World two = WorldOf(2);
  EXPECT_FALSE(FindOpenError({Process("2.28.9", {"a"}), Process("2.28.9", {"b"})}, two));
  Introduction broken = Process("", {});
  broken.error = OpenError{OpenError::Kind::kCannotRun, "no GPU", "", 1};
  EXPECT_EQ(FindOpenError({Process("2.28.9", {"a"}), broken}, two)->text, "no GPU");
  const auto mixed =
      FindOpenError({Process("2.28.9", {"a", "b"}), Process("2.30.7", {"c", "d"})}, two);
  EXPECT_EQ(mixed->text, "rank 0 has NCCL 2.28.9 and rank 2 NCCL 2.30.7");
  EXPECT_EQ(mixed->rank, 2);
  const auto shared =
      FindOpenError({Process("2.28.9", {"a", "b"}), Process("2.28.9", {"b", "c"})}, two);
  EXPECT_EQ(shared->text, "ranks 1 and 2 are on the same GPU");
}

TEST(Agreement, RanksShareAGpuIfTheRunAndNcclAllowIt) {
  const auto found = [](const std::string& version, const std::string& gpus, const World& world) {
    std::vector<Introduction> all;
    for (const char gpu : gpus) all.push_back(Process(version, {std::string(1, gpu)}));
    const auto error = FindOpenError(all, world);
    return error ? error->text : "";
  };
  EXPECT_EQ(found("2.28.9", "aabb", WorldOf(4, 2, 4)), "");
  EXPECT_EQ(found("2.31.2", "aabb", WorldOf(4, 2, 2)), "");
  EXPECT_EQ(found("2.28.9", "aabb", WorldOf(4, 2, 2)),
            "NCCL 2.28.9 does not let ranks of one node share a GPU");
  EXPECT_EQ(found("2.28.9", "aaab", WorldOf(4, 2, 4)),
            "rank 2 would be one too many on the GPU of rank 0: --ranks-per-gpu is 2");
}

TEST(Agreement, AHostIsKnownAgain) {
  EXPECT_EQ(HostHash(), HostHash());
  EXPECT_EQ(HostHash().size(), 16U);
}

TEST(Agreement, AllGetTheErrorOfOne) {
  Scripted exchange;
  EXPECT_FALSE(ShareFirstError(&exchange, std::nullopt));
  const StepError mine = {ErrorKind::kMemory, "does not fit", 2, false};
  const auto shared = ShareFirstError(&exchange, mine);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->kind, ErrorKind::kMemory);
  EXPECT_EQ(shared->rank, 2);
  // The part of another process.
  exchange.others = {exchange.last};
  EXPECT_EQ(ShareFirstError(&exchange, std::nullopt)->text, "does not fit");
  exchange.ending = true;
  EXPECT_EQ(ShareFirstError(&exchange, std::nullopt)->kind, ErrorKind::kDied);
}

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
