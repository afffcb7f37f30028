// SPDX-License-Identifier: Apache-2.0
#include "net/pool.h"
#include "net/clock.h"
#include "net/link.h"
#include "testing.h"

namespace nccltune::net {
namespace {

using Kind = Pool::Kind;
using Role = Pool::Role;

class Errand final : public Task {
 public:
  void Ready(uint32_t /*events*/) override {}
  bool Work(int64_t /*now_ns*/) override {
    if (asked.exchange(false)) ++done;
    return false;
  }
  void OnException(const char* /*what*/) noexcept override {}

  std::atomic<bool> asked = false;
  std::atomic<int> done = 0;
};

// Returns all threads of a role and kind: those of eight picks.
std::set<PoolThread*> All(Pool& pool, Role role, Kind kind) {
  std::vector<std::shared_ptr<PoolThread>> picked;
  std::set<PoolThread*> all;
  for (int i = 0; i < 8; ++i) all.insert(picked.emplace_back(pool.Pick(role, kind)).get());
  return all;
}

TEST(Pool, HasTwoLookoutsForEachRole) {
  Pool pool(6);
  ASSERT_EQ(pool.threads(), 6);
  std::set<PoolThread*> workers;
  size_t picked = 0;
  for (const Role role : {Role::kSend, Role::kReceive}) {
    const std::set<PoolThread*> lookouts = All(pool, role, Kind::kSpinning);
    const std::set<PoolThread*> others = All(pool, role, Kind::kOther);
    EXPECT_EQ(lookouts.size(), 2U);
    EXPECT_EQ(others.size(), 1U);
    workers.insert(lookouts.begin(), lookouts.end());
    workers.insert(others.begin(), others.end());
    picked += lookouts.size() + others.size();
  }
  EXPECT_EQ(workers.size(), picked);
}

TEST(Pool, HasNoLookoutsWhereThreadsAreFew) {
  Pool pool(4);
  const std::set<PoolThread*> sends = All(pool, Role::kSend, Kind::kSpinning);
  EXPECT_EQ(sends.size(), 2U);
  EXPECT_EQ(All(pool, Role::kSend, Kind::kOther), sends);
  const std::set<PoolThread*> receives = All(pool, Role::kReceive, Kind::kSpinning);
  EXPECT_EQ(All(pool, Role::kReceive, Kind::kOther), receives);
  EXPECT_FALSE(receives.contains(*sends.begin()));
  Pool one(1);
  EXPECT_EQ(one.Pick(Role::kSend, Kind::kOther), one.Pick(Role::kReceive, Kind::kSpinning));
}

// Flows of a connection are all picked before the first of them starts.
TEST(Pool, SpreadsPicksThatHaveNotStarted) {
  Pool pool(8);
  const auto pick = [&] { return pool.Pick(Role::kSend, Kind::kOther); };
  // One of the two threads has a running flow.
  Errand errand;
  const std::shared_ptr<PoolThread> busy = pick();
  const uint64_t number = busy->Add(&errand);
  for (int round = 0; round < 5; ++round) {
    std::map<PoolThread*, int> flows;
    std::vector<std::shared_ptr<PoolThread>> connection;
    for (int i = 0; i < 5; ++i) ++flows[connection.emplace_back(pick()).get()];
    ASSERT_EQ(flows.size(), 2U) << "all flows of a connection share a thread";
    EXPECT_EQ(flows[busy.get()], 2) << "it had one already";
  }
  busy->Remove(number);
}

TEST(Pool, APickCountsAsLongAsItIsHeld) {
  Pool pool(4);
  const auto pick = [&] { return pool.Pick(Role::kSend, Kind::kOther); };
  std::shared_ptr<PoolThread> first = pick();
  const std::shared_ptr<PoolThread> second = pick();
  ASSERT_NE(first, second);
  const PoolThread* const freed = first.get();
  for (int i = 0; i < 4; ++i) {
    first.reset();
    first = pick();
    EXPECT_EQ(first.get(), freed) << "the other one has a flow";
  }
}

// Returns the CPUs of the pool's threads; all have the same set.
std::set<int> CpusOfPool() {
  std::set<int> cpus;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (!name.starts_with("nccltune-net")) continue;
    const CpuSet set = CpusOfThread(std::stoi(task.path().filename().string()));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<size_t>(cpu), set.data())) cpus.insert(cpu);
    }
  }
  return cpus;
}

TEST(Pool, RunsWhereAnyOfItsCallersMay) {
  const CpuSet mine = CpusOfThread(0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), mine.data())) cpus.push_back(cpu);
  }
  if (cpus.size() < 2) GTEST_SKIP() << "the process may use one CPU only";
  // Attempts to connect of tests before this one, in the same process, keep their pool.
  ReleaseForgotten(NowNs() + 3600 * kNsPerSecond);
  ASSERT_TRUE(Until([] { return CpusOfPool().empty(); }));
  std::shared_ptr<Pool> pool;
  const auto get_on = [&](int cpu) {
    std::thread([&, cpu] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<size_t>(cpu), &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
      int error = 0;
      pool = Pool::Get(2, &error);
    }).join();
  };
  get_on(cpus[0]);
  EXPECT_EQ(CpusOfPool(), std::set<int>({cpus[0]}));
  get_on(cpus[1]);
  EXPECT_EQ(CpusOfPool(), std::set<int>({cpus[0], cpus[1]}));
  get_on(cpus[0]);
  EXPECT_EQ(CpusOfPool(), std::set<int>({cpus[0], cpus[1]}));
}

TEST(PoolThread, IsReliedOnOnlyAwake) {
  PoolThread worker(0, kNsPerMs);
  ASSERT_TRUE(worker.works());
  Errand errand;
  const uint64_t number = worker.Add(&errand);
  for (int i = 1; i <= 300; ++i) {
    errand.asked = true;
    // The thread may be awake or asleep; the work must be done in both cases.
    if (!worker.TryAssign(1)) worker.Wake();
    while (errand.done != i) usleep(10);
    usleep(static_cast<useconds_t>(i % 3) * 900);
  }
  while (!worker.asleep()) usleep(100);
  EXPECT_FALSE(worker.TryAssign(100));
  worker.Remove(number);
}

// Gets work after the thread has found none, and before it is marked as asleep: nobody wakes it.
class LateErrand final : public Task {
 public:
  explicit LateErrand(PoolThread& worker) : worker_(worker) {}
  void Ready(uint32_t /*events*/) override {}
  bool Work(int64_t /*now_ns*/) override {
    if (!asked_.exchange(false)) return false;
    ++done;
    return true;
  }
  bool IsSaturated(int64_t /*now_ns*/) const override {
    if (armed.exchange(false)) {
      asked_ = true;
      EXPECT_FALSE(worker_.asleep());
      worker_.Wake();
    }
    return true;
  }
  void OnException(const char* /*what*/) noexcept override {}

  mutable std::atomic<bool> armed = false;
  std::atomic<int> done = 0;

 private:
  PoolThread& worker_;
  mutable std::atomic<bool> asked_ = false;
};

TEST(PoolThread, LooksOnceMoreBeforeItSleeps) {
  PoolThread worker(0, 3600 * kNsPerSecond);
  ASSERT_TRUE(worker.works());
  LateErrand errand(worker);
  const uint64_t number = worker.Add(&errand);
  for (int i = 1; i <= 20; ++i) {
    while (!worker.asleep()) usleep(100);
    errand.armed = true;
    worker.Wake();
    if (!Until([&] { return errand.done == i; })) break;
  }
  EXPECT_EQ(errand.done, 20) << "a wake-up is lost";
  worker.Remove(number);
}

}  // namespace
}  // namespace nccltune::net
