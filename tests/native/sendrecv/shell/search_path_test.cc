// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/hooks/search_path.h"
#include "sendrecv/locks.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

void Add(std::string* bytes, uint32_t number) {
  char memory[sizeof number];
  std::memcpy(memory, &number, sizeof number);
  bytes->append(memory, sizeof memory);
}

std::string Cache(const Lines& lines) {
  const auto count = static_cast<uint32_t>(lines.size());
  std::string strings;
  std::string entries;
  const uint32_t start = 48 + 24 * count;
  for (const auto& [name, path] : lines) {
    Add(&entries, 0x303);
    Add(&entries, start + static_cast<uint32_t>(strings.size()));
    strings += name + '\0';
    Add(&entries, start + static_cast<uint32_t>(strings.size()));
    strings += path + '\0';
    for (int i = 0; i < 3; ++i) Add(&entries, 0);
  }
  std::string cache = "glibc-ld.so.cache1.1";
  Add(&cache, count);
  Add(&cache, static_cast<uint32_t>(strings.size()));
  for (int i = 0; i < 5; ++i) Add(&cache, 0);
  return cache + entries + strings;
}

std::vector<std::string> Find(const std::string& content, const char* name) {
  const std::string path = testing::TempDir() + "ld.so.cache." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << content;
  std::vector<std::string> found = FindInLoaderCache(path, name);
  std::remove(path.c_str());
  return found;
}

const Lines kLines = {{"libm.so.6", "/lib/libm.so.6"},
                      {"libnccl.so.2", "/opt/a/libnccl.so.2"},
                      {"libnccl.so.2.1", "/opt/c/libnccl.so.2.1"},
                      {"libnccl.so.2", "/opt/b/libnccl.so.2"}};

TEST(LoaderCache, HasTheFilesOfAName) {
  const std::vector<std::string> both = {"/opt/a/libnccl.so.2", "/opt/b/libnccl.so.2"};
  EXPECT_EQ(Find(Cache(kLines), "libnccl.so.2"), both);
  EXPECT_TRUE(Find(Cache(kLines), "libnccl.so").empty());
  // After a header in the format used before glibc 2.2.
  EXPECT_EQ(Find("ld.so-1.7.0 and so on" + Cache(kLines), "libnccl.so.2"), both);
}

TEST(LoaderCache, HasNothingWhereItIsNone) {
  EXPECT_TRUE(FindInLoaderCache("/nowhere/ld.so.cache", "libnccl.so.2").empty());
  EXPECT_TRUE(Find("something else", "libnccl.so.2").empty());
}

TEST(LoaderCache, IsReadNoFartherThanItGoes) {
  const std::string whole = Cache(kLines);
  const size_t all = Find(whole, "libnccl.so.2").size();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_LE(Find(whole.substr(0, size), "libnccl.so.2").size(), all);
  }
  for (size_t i = 20; i < whole.size(); i += 4) {
    std::string spoilt = whole;
    for (size_t k = i; k < i + 4 && k < spoilt.size(); ++k) spoilt[k] = '\xff';
    EXPECT_LE(Find(spoilt, "libnccl.so.2").size(), all);
  }
}

TEST(LoaderCache, ThisMachinesOwn) {
  const std::vector<std::string> found = FindInLoaderCache("/etc/ld.so.cache", "libc.so.6");
  if (found.empty()) GTEST_SKIP() << "no libc.so.6 in /etc/ld.so.cache";
  EXPECT_TRUE(Has(found.front(), "/libc.so.6"));
}

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
  EXPECT_EQ(InChild([&] {
              alarm(60);  // ends the test if it hangs
              bool done = false;
              once.Do([&] { done = true; }, kLong);
              return done ? 0 : 1;
            }),
            0);
  go_on = true;
  thread.join();
  bool again = false;
  once.Do([&] { again = true; }, kLong);
  EXPECT_FALSE(again);
}

}  // namespace
}  // namespace nccltune::sendrecv
