// SPDX-License-Identifier: Apache-2.0
#include "common/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace nccltune {
namespace {

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
