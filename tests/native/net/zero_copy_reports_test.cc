// SPDX-License-Identifier: Apache-2.0
//
// The kernel's reports of zero-copy sends on one socket, which dies meanwhile.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/clock.h"
#include "net/kernel_stand_in.h"
#include "net/link.h"
#include "net/socket.h"
#include "net/stats_page.h"
#include "net/zero_copy.h"

namespace nccltune::net {
namespace {

constexpr size_t kOneSend = 64 << 10;

class ZeroCopyReportsTest : public testing::Test {
 protected:
  ZeroCopyReportsTest() : content_(Content(kOneSend, 1)) {
    ResetKernel();
    // Data that the kernel drops was not copied either.
    TheKernel().hides_copies = true;
    SocketResult listening = ListenOn(Loopback().nics.front(), {});
    SocketResult near =
        StartConnecting(Loopback().nics.front(), LocalEnd(listening.socket.fd()), -1);
    near_ = std::move(near.socket);
    EXPECT_TRUE(Until([&] {
      far_ = AcceptOne(listening.socket.fd(), -1).socket;
      return static_cast<bool>(far_);
    }));
  }
  ~ZeroCopyReportsTest() override { ResetKernel(); }

  // Sends a frame that nobody reads, so that the kernel keeps it.
  void SendFrame(uint64_t request) {
    const std::optional<IoResult> moved = zero_copy_.Send(near_.fd(), request, content_);
    ASSERT_TRUE(moved.has_value());
    ASSERT_GT(moved->bytes, 0U);
    zero_copy_.Finish();
  }

  std::vector<std::byte> content_;
  Descriptor near_;
  Descriptor far_;
  Counters counters_;
  ZeroCopy zero_copy_{ZeroCopyMode::kAuto, counters_};
  std::vector<uint64_t> released_;
};

TEST_F(ZeroCopyReportsTest, OfADeadSocketShowNothingAboutThePath) {
  SendFrame(7);
  EXPECT_FALSE(zero_copy_.Wants(kOneSend)) << "one at a time on trial";
  zero_copy_.Abandon(&near_, NowNs(), &released_);
  // Dropping the queue immediately reports what was only in the queue.
  ASSERT_TRUE(Until([&] {
    if (zero_copy_.dying()) zero_copy_.ReadDyingReports(&released_);
    return !zero_copy_.dying();
  }));
  EXPECT_EQ(released_, std::vector<uint64_t>{7});
  EXPECT_EQ(counters_.uncopied_bytes, 0U);
  EXPECT_EQ(counters_.copy_reports, 0U);
  // The next socket is on trial again: a second send waits for the report of the first.
  EXPECT_TRUE(zero_copy_.Wants(kOneSend));
}

TEST_F(ZeroCopyReportsTest, OfADeadSocketAreAwaitedThoughTheyComeLate) {
  TheKernel().holds_reports = true;
  SendFrame(3);
  SendFrame(4);
  zero_copy_.Abandon(&near_, NowNs(), &released_);
  EXPECT_TRUE(zero_copy_.dying());
  EXPECT_FALSE(near_) << "it belongs to the reports";
  EXPECT_FALSE(zero_copy_.ReadDyingReports(&released_));
  EXPECT_TRUE(released_.empty());
  EXPECT_FALSE(zero_copy_.outstanding()) << "the next socket has none";
  TheKernel().holds_reports = false;
  ASSERT_TRUE(Until([&] {
    zero_copy_.ReadDyingReports(&released_);
    return !zero_copy_.dying();
  }));
  EXPECT_EQ(released_, (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(counters_.uncopied_bytes, 0U);
}

TEST_F(ZeroCopyReportsTest, OfALivingSocketKeepIt) {
  SendFrame(1);
  std::vector<std::byte> arrived(kOneSend);
  size_t read = 0;
  ASSERT_TRUE(Until([&] {
    iovec part = {arrived.data() + read, arrived.size() - read};
    read += ReadSome(far_.fd(), {&part, 1}).bytes;
    zero_copy_.Reports(near_.fd(), &released_);
    return !released_.empty();
  }));
  EXPECT_GT(counters_.uncopied_bytes, 0U);
  zero_copy_.Abandon(&near_, NowNs(), &released_);
  EXPECT_FALSE(zero_copy_.dying());
  EXPECT_TRUE(near_) << "nothing is outstanding";
}

}  // namespace
}  // namespace nccltune::net
