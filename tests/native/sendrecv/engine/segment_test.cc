// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/peers/segment.h"
#include "common/cuda_api.h"
#include "sendrecv/stand_in/processes.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

std::string Key(const char* name) { return std::string(name) + " " + std::to_string(getpid()); }

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
  for (size_t i = 0; i < kMaxLocalRanks; ++i) EXPECT_EQ(segment->Join(&why), i) << why;
  EXPECT_FALSE(segment->Join(&why).has_value());
  EXPECT_EQ(why, "more than 64 ranks on this host");
  EXPECT_EQ(segment->places(), kMaxLocalRanks);
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
    // A child inherits neither the locks nor the open segments of its parent.
    std::string problem;
    const auto mine = Segment::Open(key, &problem);
    const auto place = mine->Join(&problem);
    mine->memory().records[*place].state.store(RankRecord::kJoined);
    const char done = 'd';
    if (write(ways[1], &done, 1) != 1) _exit(1);
    pause();
  }
  char done = 0;
  ASSERT_EQ(read(ways[0], &done, 1), 1);
  EXPECT_TRUE(segment->IsAlive(0));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(segment->IsAlive(0));
  // A rank that has left properly does not count as dead.
  segment->memory().records[0].state.store(RankRecord::kLeft);
  EXPECT_TRUE(segment->IsAlive(0));
  segment->Unlink();
  close(ways[0]);
  close(ways[1]);
}

// Files of processes that were killed before NCCL had created their communicators.
TEST(Segment, TheNextStartRemovesStaleFiles) {
  const std::string path = "/dev/shm/nccltune-sendrecv-6-" + std::to_string(getpid());
  const std::string held = path + "-held";
  const std::string fresh = path + "-fresh";
  for (const std::string& each : {path, held, fresh}) {
    std::ofstream(each) << "of another release";
    const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
    if (each != fresh) {
      ASSERT_EQ(utimensat(AT_FDCWD, each.c_str(), old, 0), 0);
    }
  }
  const int file = open(held.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 3;
  lock.l_len = 1;
  ASSERT_EQ(fcntl(file, F_SETLK, &lock), 0);
  // Another process of a program that starts.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX " + self +
                              " --gtest_filter=Segment.LeavesNoFileBehind >/dev/null";
  EXPECT_EQ(system(command.c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(held)) << "its rank may be starting";
  EXPECT_TRUE(std::filesystem::exists(fresh)) << "its rank may not have locked its place yet";
  close(file);
  for (const std::string& each : {held, fresh}) unlink(each.c_str());
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
  const cu::Api* const api = OpenCuda(&why);
  ASSERT_NE(api, nullptr) << why;
  const auto driver = CudaDriver::OfCurrent(*api, &why);
  ASSERT_NE(driver, nullptr) << why;
  const auto segment = Segment::Open(Key("lane"), &why);
  ASSERT_NE(segment, nullptr) << why;
  segment->Unlink();
  const Segment::LaneMapping lane = segment->MapLane(*driver, 3, 5, {}, &why);
  ASSERT_NE(lane.memory, nullptr) << why;
  EXPECT_EQ(segment->MapLane(*driver, 3, 5, {}, &why).memory, lane.memory);
  EXPECT_NE(segment->MapLane(*driver, 5, 3, {}, &why).memory, lane.memory);
  EXPECT_NE(&segment->GateOf(3, 5), &segment->GateOf(5, 3));
  BreakLane(*lane.memory);
  EXPECT_TRUE(LaneEnd(*lane.memory, segment->GateOf(3, 5), Role::kReceiver).broken());
}

// Another user may have created a file of this name. It is refused and not removed.
class ForeignFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const auto segment = Segment::Open(key_, &why);
    ASSERT_NE(segment, nullptr) << why;
    segment->Unlink();
    path_ = "/dev/shm" + segment->name();
  }
  void TearDown() override { unlink(path_.c_str()); }

  void Write(const std::string& content, mode_t mode = 0600) const {
    std::ofstream(path_, std::ios::binary) << content;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  void ExpectRefused(const std::string& reason) const {
    std::string why;
    EXPECT_EQ(Segment::Open(key_, &why), nullptr);
    EXPECT_TRUE(Has(why, reason)) << why;
  }

  const std::string key_ = Key("foreign");
  std::string path_;
};

TEST_F(ForeignFile, OfAnotherReleaseOrGarbageIsRefused) {
  const uint64_t newer = SegmentMemory::kHeader + 1;
  for (const std::string& content :
       {std::string(reinterpret_cast<const char*>(&newer), sizeof(newer)),
        std::string(100'000, 'x'),
        std::string("\x7f"
                    "ELF garbage")}) {
    Write(content);
    ExpectRefused("is of another release or damaged");
  }
}

TEST_F(ForeignFile, OfAnotherUserIsRefused) {
  Write("");
  if (chown(path_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root gives files away";
  ExpectRefused("is not a file of this user alone (owner 12345)");
}

TEST_F(ForeignFile, ThatOthersMayReadOrWriteIsRefused) {
  for (const mode_t mode : {0666U, 0660U, 0640U, 0604U}) {
    Write("", mode);
    ExpectRefused("is not a file of this user alone");
  }
}

// A link is refused even if it leads to a file of this user, which would be overwritten.
TEST_F(ForeignFile, ThatIsALinkIsRefused) {
  const std::string other = path_ + "-other";
  std::ofstream(other) << "";
  ASSERT_EQ(chmod(other.c_str(), 0600), 0);
  EXPECT_EQ(symlink(other.c_str(), path_.c_str()), 0);
  ExpectRefused("Too many levels of symbolic links");
  EXPECT_EQ(unlink(other.c_str()), 0);
}

TEST_F(ForeignFile, ThatIsNoFileIsRefused) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused("is not a file of this user alone");
}

TEST_F(ForeignFile, ThatIsShortOrLongHasTheRightSize) {
  for (const size_t bytes : {size_t{0}, size_t{9}, size_t{1} << 20}) {
    Write(std::string(bytes, '\0'));
    std::string why;
    const auto segment = Segment::Open(key_, &why);
    ASSERT_NE(segment, nullptr) << why;
    EXPECT_TRUE(segment->Join(&why).has_value()) << why;
    EXPECT_EQ(segment->memory().records[0].state.load(), uint32_t{RankRecord::kEmpty});
    segment->Unlink();
  }
}

// Another process truncated the file after it was opened. Mapping a lane still reserves its memory.
TEST_F(ForeignFile, ALaneOfAFileThatWasCutHasMemory) {
  soft::UseGpu(0);
  std::string why;
  const cu::Api* const api = OpenCuda(&why);
  ASSERT_NE(api, nullptr) << why;
  const auto driver = CudaDriver::OfCurrent(*api, &why);
  ASSERT_NE(driver, nullptr) << why;
  const auto segment = Segment::Open(key_, &why);
  ASSERT_NE(segment, nullptr) << why;
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(sizeof(SegmentMemory))), 0);
  const Segment::LaneMapping lane = segment->MapLane(*driver, 3, 5, {}, &why);
  ASSERT_NE(lane.memory, nullptr) << why;
  BreakLane(*lane.memory);
  EXPECT_FALSE(HasIncomplete(*lane.memory));
  segment->Unlink();
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
