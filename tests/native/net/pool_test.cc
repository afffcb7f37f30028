// SPDX-License-Identifier: Apache-2.0
#include "net/pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "net/clock.h"

namespace nccltune::net {
namespace {

using Kind = Pool::Kind;
using Role = Pool::Role;

// All of them, or null where they differ.
Worker* Only(Pool& pool, Role role, Kind kind) {
  std::set<Worker*> all;
  for (int i = 0; i < 8; ++i) all.insert(&pool.Pick(role, kind));
  return all.size() == 1 ? *all.begin() : nullptr;
}

TEST(Pool, HasALookoutForEachRole) {
  Pool pool(6);
  ASSERT_EQ(pool.threads(), 6);
  Worker* const sends = Only(pool, Role::kSend, Kind::kLookout);
  Worker* const receives = Only(pool, Role::kReceive, Kind::kLookout);
  ASSERT_NE(sends, nullptr);
  ASSERT_NE(receives, nullptr);
  EXPECT_NE(sends, receives);
  EXPECT_EQ(Only(pool, Role::kSend, Kind::kOther), nullptr);
  for (int i = 0; i < 8; ++i) {
    EXPECT_NE(&pool.Pick(Role::kSend, Kind::kOther), sends);
    EXPECT_NE(&pool.Pick(Role::kReceive, Kind::kOther), receives);
  }
}

TEST(Pool, HasNoLookoutsWhereThreadsAreFew) {
  Pool pool(2);
  Worker* const sends = Only(pool, Role::kSend, Kind::kLookout);
  EXPECT_EQ(Only(pool, Role::kSend, Kind::kOther), sends);
  Worker* const receives = Only(pool, Role::kReceive, Kind::kLookout);
  EXPECT_EQ(Only(pool, Role::kReceive, Kind::kOther), receives);
  EXPECT_NE(sends, receives);
  Pool one(1);
  EXPECT_EQ(&one.Pick(Role::kSend, Kind::kOther), &one.Pick(Role::kReceive, Kind::kLookout));
}

class Errand final : public Task {
 public:
  void Ready(uint32_t /*events*/) override {}
  bool Work(int64_t /*now_ns*/) override {
    if (asked.exchange(false)) ++done;
    return false;
  }

  std::atomic<bool> asked = false;
  std::atomic<int> done = 0;
};

TEST(Worker, IsReliedOnOnlyAwake) {
  Worker worker(0, kNsPerMs);
  ASSERT_TRUE(worker.works());
  Errand errand;
  const uint64_t number = worker.Add(&errand);
  for (int i = 1; i <= 300; ++i) {
    errand.asked = true;
    // Now awake, now asleep: what is asked for is done either way.
    if (!worker.Rely(1)) worker.Wake();
    while (errand.done != i) usleep(10);
    usleep(static_cast<useconds_t>(i % 3) * 900);
  }
  while (!worker.asleep()) usleep(100);
  EXPECT_FALSE(worker.Rely(100));
  worker.Remove(number);
}

}  // namespace
}  // namespace nccltune::net
