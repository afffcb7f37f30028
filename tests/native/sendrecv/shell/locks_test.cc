// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/locks.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

TEST(InlineMutex, IsRefusedWhileItIsHeld) {
  InlineMutex mutex;
  {
    const std::scoped_lock lock(mutex);
    std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  }
  std::thread([&] {
    EXPECT_TRUE(mutex.try_lock());
    mutex.unlock();
  }).join();
}

// Each of many waiting threads gets the lock, one at a time. A second one inside would be a race
// for the thread sanitizer.
TEST(InlineMutex, LetsOneInAtATime) {
  constexpr int kThreads = 8;
  constexpr int kTurns = 5000;
  InlineMutex mutex;
  int turns = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::scoped_lock lock(mutex);
        ++turns;
        // Makes other threads find the lock held, even on one core.
        if (turn % 16 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns, kThreads * kTurns);
}

constexpr auto kLong = std::chrono::seconds(60);

TEST(Once, IsDoneByOneThreadAndSeenByAll) {
  Once once;
  int done = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      once.Do([&] { ++done; }, kLong);
      if (done != 1) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(wrong, 0);
}

TEST(Once, AChildThatWasForkedMeanwhileDoesItAgain) {
  Once once;
  std::atomic<bool> begun = false;
  std::atomic<bool> go_on = false;
  std::thread thread([&] {
    once.Do(
        [&] {
          begun = true;
          while (!go_on) sched_yield();
        },
        kLong);
  });
  while (!begun) sched_yield();
  EXPECT_FALSE(once.Do([] {}, std::chrono::milliseconds(1))) << "the other thread is not done";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends the test if it hangs
    bool done = false;
    once.Do([&] { done = true; }, kLong);
    _exit(done ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  go_on = true;
  thread.join();
  bool again = false;
  once.Do([&] { again = true; }, kLong);
  EXPECT_FALSE(again);
}

}  // namespace
}  // namespace nccltune::sendrecv
