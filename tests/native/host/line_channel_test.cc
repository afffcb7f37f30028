// SPDX-License-Identifier: Apache-2.0
#include "host/line_channel.h"
#include "host/guarded.h"
#include "testing.h"

namespace nccltune::host {
namespace {

// Replaces standard input, output and error by pipes, and restores them afterwards.
class LineChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::fflush(stdout);
    saved_in_ = dup(STDIN_FILENO);
    saved_out_ = dup(STDOUT_FILENO);
    saved_err_ = dup(STDERR_FILENO);
    ASSERT_EQ(pipe(to_), 0);
    ASSERT_EQ(pipe(from_), 0);
    ASSERT_EQ(pipe(noise_), 0);
    dup2(to_[0], STDIN_FILENO);
    dup2(from_[1], STDOUT_FILENO);
    dup2(noise_[1], STDERR_FILENO);
  }

  void TearDown() override {
    std::fflush(stdout);
    dup2(saved_in_, STDIN_FILENO);
    dup2(saved_out_, STDOUT_FILENO);
    dup2(saved_err_, STDERR_FILENO);
    for (const int fd :
         {to_[0], from_[0], from_[1], noise_[0], noise_[1], saved_in_, saved_out_, saved_err_}) {
      close(fd);
    }
  }

  void Send(const std::string& bytes) {
    ASSERT_EQ(write(to_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void EndInput() { close(to_[1]); }

  static std::string Drain(int fd) {
    char bytes[256];
    const ssize_t got = read(fd, bytes, sizeof bytes);
    return {bytes, got > 0 ? static_cast<size_t>(got) : 0};
  }

  int to_[2];     // what the channel reads
  int from_[2];   // what the channel writes
  int noise_[2];  // standard error
  int saved_in_ = -1;
  int saved_out_ = -1;
  int saved_err_ = -1;
};

using Result = LineChannel::Result;

TEST_F(LineChannelTest, ReadsLinesAndTheLastWithoutItsEnd) {
  LineChannel channel;
  ASSERT_TRUE(channel.ok());
  Send("one\n\ntwo\r\nthr");
  Send("ee");
  EndInput();
  std::string line;
  for (const char* expected : {"one", "", "two\r", "three"}) {
    ASSERT_EQ(channel.ReadLine(&line), Result::kLine);
    EXPECT_EQ(line, expected);
  }
  EXPECT_EQ(channel.ReadLine(&line), Result::kEnd);
  EXPECT_EQ(channel.ReadLine(&line), Result::kEnd);
}

TEST_F(LineChannelTest, PassesOverALineThatIsTooLong) {
  LineChannel channel;
  ASSERT_TRUE(channel.ok());
  std::thread writer([this] {
    Send(std::string((3 << 20) + 17, 'x') + "\nshort\n" + std::string(2 << 20, 'y'));
    EndInput();
  });
  std::string line;
  EXPECT_EQ(channel.ReadLine(&line), Result::kTooLong);
  EXPECT_EQ(channel.ReadLine(&line), Result::kLine);
  EXPECT_EQ(line, "short");
  EXPECT_EQ(channel.ReadLine(&line), Result::kTooLong);
  EXPECT_EQ(channel.ReadLine(&line), Result::kEnd);
  writer.join();
}

TEST_F(LineChannelTest, KeepsOthersOffItsInputAndOutput) {
  LineChannel channel;
  ASSERT_TRUE(channel.ok());
  Send("for the channel\n");
  EndInput();
  EXPECT_EQ(Drain(STDIN_FILENO), "");
  std::puts("noise");
  std::fflush(stdout);
  EXPECT_EQ(Drain(noise_[0]), "noise\n");
  EXPECT_TRUE(channel.WriteLine("{}"));
  EXPECT_EQ(Drain(from_[0]), "{}\n");
  std::string line;
  EXPECT_EQ(channel.ReadLine(&line), Result::kLine);
  EXPECT_EQ(line, "for the channel");
}

TEST(Guarded, SeesNothingWhileWritesStayInside) {
  Guarded<int> number("channel count", 7);
  EXPECT_EQ(number.get(), 7);
  *number.data() = -1;
  EXPECT_EQ(number.get(), -1);
  EXPECT_EQ(number.TakeDamage(), std::nullopt);
  GuardedBytes bytes("cost table", 84);
  std::memset(bytes.data(), 0xFF, bytes.size());
  EXPECT_EQ(bytes.TakeDamage(), std::nullopt);
}

TEST(Guarded, ReportsHowFarAWriteMissed) {
  Guarded<float> cost("cost table", 1.0f);
  cost.data()[1] = 0.0f;
  EXPECT_EQ(cost.TakeDamage(),
            "wrote outside of the cost table (4 bytes): 4 bytes up to 4 behind "
            "it");
  EXPECT_EQ(cost.TakeDamage(), std::nullopt);
  cost.data()[-2] = 0.0f;
  cost.data()[9] = 0.0f;
  EXPECT_EQ(cost.TakeDamage(),
            "wrote outside of the cost table (4 bytes): 4 bytes up to 8 before "
            "it, 4 bytes up to 36 behind it");
  EXPECT_EQ(cost.get(), 1.0f);
}

TEST(Guarded, SeesAWriteAnywhereNearby) {
  GuardedBytes bytes("model constants", 1152);
  auto* data = static_cast<unsigned char*>(bytes.data());
  for (const int at : {-4096, -1, 1152, 5247}) {
    data[at] ^= 1;
    EXPECT_NE(bytes.TakeDamage(), std::nullopt) << at;
    EXPECT_EQ(bytes.TakeDamage(), std::nullopt) << at;
  }
}

}  // namespace
}  // namespace nccltune::host
