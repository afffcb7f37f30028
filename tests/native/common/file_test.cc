// SPDX-License-Identifier: Apache-2.0
#include "common/file.h"
#include "common/descriptor.h"
#include "testing.h"

namespace nccltune {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }

  void Write(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }

  // Tests run in parallel, each in its own process.
  std::string path_ = ::testing::TempDir() + "nccltune-file-test-" + std::to_string(getpid());
  std::string content_;
  std::string error_;
};

TEST_F(FileTest, ReadsAllBytes) {
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += static_cast<char>(i % 256);
  Write(bytes);
  EXPECT_TRUE(ReadFile(path_, bytes.size(), &content_, &error_));
  EXPECT_EQ(content_, bytes);
  Write("");
  EXPECT_TRUE(ReadFile(path_, 0, &content_, &error_));
  EXPECT_TRUE(content_.empty());
}

TEST_F(FileTest, RefusesMoreThanItMay) {
  Write("12345");
  EXPECT_FALSE(ReadFile(path_, 4, &content_, &error_));
  EXPECT_EQ(error_, "has 5 bytes, more than 4");
}

TEST_F(FileTest, ReportsWhyItCannot) {
  EXPECT_FALSE(ReadFile(path_ + "-missing", 9, &content_, &error_));
  EXPECT_EQ(error_, "No such file or directory");
  EXPECT_FALSE(ReadFile(::testing::TempDir(), 9, &content_, &error_));
  EXPECT_EQ(error_, "is a directory");
  EXPECT_FALSE(ReadFile("/dev/zero", 9, &content_, &error_));
  EXPECT_EQ(error_, "is not a regular file");
}

// The size or the time of the file shows that it was written in the meantime.
TEST_F(FileTest, AFileThatChangesMeanwhileIsNeverReadInParts) {
  constexpr size_t kBytes = 4 << 20;
  Write(std::string(kBytes, 'a'));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (bool a = false; !stop; a = !a) Write(std::string(a ? kBytes : kBytes / 2, a ? 'a' : 'b'));
  });
  for (int i = 0; i < 50; ++i) {
    // The writer may be in the middle of a file for longer than a pause of the reader.
    if (!ReadFile(path_, kBytes, &content_, &error_) || content_.empty()) continue;
    EXPECT_EQ(content_, std::string(content_.size(), content_.front()));
  }
  stop = true;
  writer.join();
}

TEST_F(FileTest, AFileWithoutASizeIsRefused) {
  EXPECT_FALSE(ReadFile("/proc/self/status", 1 << 20, &content_, &error_));
  EXPECT_EQ(error_, "changes while it is read, or its size is not known");
}

TEST_F(FileTest, DoesNotWaitForAPipe) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(ReadFile(path_, 9, &content_, &error_));
  EXPECT_EQ(error_, "is not a regular file");
}

int OpenNothing() { return open("/dev/null", O_RDONLY); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptor, ClosesItsFileOnce) {
  int fd = -1;
  {
    const Descriptor file(OpenNothing());
    ASSERT_TRUE(file);
    fd = file.fd();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(Descriptor, MovesWithoutClosing) {
  Descriptor first(OpenNothing());
  const int fd = first.fd();
  Descriptor second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(second.fd(), fd);
  EXPECT_TRUE(IsOpen(fd));
}

TEST(Descriptor, AssignmentClosesTheOldFile) {
  Descriptor kept(OpenNothing());
  Descriptor other(OpenNothing());
  const int old = kept.fd();
  const int taken = other.fd();
  kept = std::move(other);
  EXPECT_FALSE(IsOpen(old));
  EXPECT_TRUE(IsOpen(taken));
  EXPECT_EQ(kept.fd(), taken);
}

TEST(Descriptor, IsEmptyAfterCloseAndRelease) {
  Descriptor file(OpenNothing());
  const int closed = file.fd();
  file.Close();
  EXPECT_FALSE(file);
  EXPECT_FALSE(IsOpen(closed));
  file = Descriptor(OpenNothing());
  const Descriptor again(file.Release());
  EXPECT_FALSE(file);
  EXPECT_TRUE(IsOpen(again.fd()));
}

TEST(Descriptor, IsNotInheritedAfterCloseOnExec) {
  const Descriptor file(OpenNothing());
  EXPECT_EQ(fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
  file.CloseOnExec();
  EXPECT_NE(fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace nccltune
