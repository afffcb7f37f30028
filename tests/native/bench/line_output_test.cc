// SPDX-License-Identifier: Apache-2.0
#include "bench/ensemble.h"
#include "bench/support.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

TEST(LineOutput, WritesLinesAtOnce) {
  Pipe pipe = MakePipe();
  LineOutput output(pipe.write.fd());
  output.Write("one");
  output.Write("");
  EXPECT_EQ(output.waiting(), 0U);
  EXPECT_EQ(ReadSome(pipe.read.fd(), 5), "one\n\n");
}

TEST(LineOutput, NeverWaitsForTheReader) {
  Pipe pipe = MakePipe();
  LineOutput output(pipe.write.fd());
  std::string expected;
  for (int i = 0; i < 50'000; ++i) {
    output.Write(std::to_string(i));
    expected += std::to_string(i) + "\n";
  }
  EXPECT_GT(output.waiting(), 0U);
  std::string read;
  while (read.size() < expected.size()) {
    read += ReadSome(pipe.read.fd(), std::min<size_t>(4096, expected.size() - read.size()));
    output.Flush();
  }
  EXPECT_EQ(read, expected);
  EXPECT_EQ(output.waiting(), 0U);
  EXPECT_EQ(fcntl(pipe.write.fd(), F_GETFL) & O_NONBLOCK, 0) << "others share the descriptor";
}

TEST(LineOutput, ReportsAClosedReader) {
  signal(SIGPIPE, SIG_IGN);
  Pipe pipe = MakePipe();
  LineOutput output(pipe.write.fd());
  pipe.read.Close();
  output.Write("one");
  EXPECT_EQ(output.broken(), "Broken pipe");
  output.Write("two");
  EXPECT_EQ(output.waiting(), 0U);
}

TEST(LineOutput, ReportsAFullDisk) {
  const Descriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full) GTEST_SKIP() << "there is no /dev/full";
  LineOutput output(full.fd());
  output.Write("one");
  EXPECT_EQ(output.broken(), "No space left on device");
}

}  // namespace
}  // namespace nccltune::bench
