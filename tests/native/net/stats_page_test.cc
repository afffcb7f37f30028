// SPDX-License-Identifier: Apache-2.0
#include "net/stats_page.h"
#include "testing.h"

namespace nccltune::net {
namespace {

// Lowers a limit of this process for a while.
class Limited {
 public:
  Limited(__rlimit_resource resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limit = {most, before_.rlim_max};
    setrlimit(resource_, &limit);
  }
  ~Limited() { setrlimit(resource_, &before_); }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_ = {};
};

std::vector<uint64_t> WordsOf(int fd) {
  std::vector<uint64_t> words(4096);
  const ssize_t bytes = pread(fd, words.data(), words.size() * 8, 0);
  words.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes) / 8);
  return words;
}

TEST(StatsPage, IsWhatAnotherProgramFindsUnderItsName) {
  ASSERT_TRUE(OpenMemory(kStatsName).empty());
  StatsPage page(3);
  ASSERT_EQ(page.hidden(), "");
  const std::vector<int> found = OpenMemory(kStatsName);
  ASSERT_EQ(found.size(), 1U);
  page.connection().counters.bytes = 77;
  page.flows()[2].chunks = 5;
  std::vector<uint64_t> words = WordsOf(found[0]);
  ASSERT_EQ(words.size(), (448 + 3 * 256) / 8U);
  EXPECT_EQ(words[0], 0U) << "not complete yet";
  page.Publish();
  words = WordsOf(found[0]);
  EXPECT_EQ(std::memcmp(words.data(), "ncclstat", 8), 0);
  EXPECT_EQ(words[1], 1U);
  EXPECT_EQ(words[2], words.size() * 8);
  EXPECT_EQ(words[3], 448U);
  EXPECT_EQ(words[4], 256U);
  EXPECT_EQ(words[5], 3U);
  EXPECT_EQ(words[6], static_cast<uint64_t>(getpid()));
  EXPECT_EQ(words[(320 + 16) / 8], 77U) << "the third counter";
  EXPECT_EQ(words[(448 + 2 * 256 + 152) / 8], 5U);
}

TEST(StatsPage, IsNotInheritedAndKeepsItsSize) {
  const StatsPage page(1);
  const std::vector<int> found = OpenMemory(kStatsName);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(fcntl(found[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(ftruncate(found[0], 0), -1) << "a write would be the end of the process";
  EXPECT_EQ(fcntl(found[0], F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW),
            F_SEAL_SHRINK | F_SEAL_GROW);
}

TEST(StatsPage, GoesWithItsOwner) {
  for (int i = 0; i < 3; ++i) {
    const StatsPage one(1);
    const StatsPage two(64);
    EXPECT_EQ(OpenMemory(kStatsName).size(), 2U);
  }
  EXPECT_TRUE(OpenMemory(kStatsName).empty());
}

TEST(StatsPage, CountsUnseenWithoutADescriptor) {
  std::string why;
  {
    const Limited limited(RLIMIT_NOFILE, 0);
    StatsPage page(4);
    page.Publish();
    page.flows()[3].bytes += 9;
    EXPECT_EQ(page.flows()[3].bytes, 9U);
    EXPECT_EQ(page.connection().flows, 4U);
    why = page.hidden();
  }
  EXPECT_EQ(why, "memfd_create: Too many open files");
}

TEST(StatsPage, CountsUnseenWhereFilesMayNotBeSoLarge) {
  std::string why;
  {
    // A larger file would raise a signal.
    const Limited limited(RLIMIT_FSIZE, 100);
    const StatsPage page(4);
    page.flows()[3].bytes += 9;
    EXPECT_EQ(page.flows()[3].bytes, 9U);
    why = page.hidden();
  }
  EXPECT_EQ(why, "the limit of a file's size: File too large");
}

TEST(SharedText, IsCutAndEnded) {
  SharedText<16> text;
  EXPECT_EQ(text.Get(), "");
  text.Set("10.0.0.1:4000");
  EXPECT_EQ(text.Get(), "10.0.0.1:4000");
  text.Set(std::string(40, 'x'));
  EXPECT_EQ(text.Get(), std::string(15, 'x'));
  text.Set("y");
  EXPECT_EQ(text.Get(), "y");
}

}  // namespace
}  // namespace nccltune::net
