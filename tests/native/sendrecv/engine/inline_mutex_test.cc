// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/locks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace nccltune::sendrecv
