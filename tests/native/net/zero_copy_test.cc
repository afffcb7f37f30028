// SPDX-License-Identifier: Apache-2.0
// Zero-copy sends over complete connections. Over loopback the kernel copies when a packet reaches
// the receiver; until then it reads the application's memory, as for a NIC. So the stand-in only
// hides or delays the kernel's report of the copy.
#include "net/zero_copy.h"
#include "net/clock.h"
#include "net/kernel_stand_in.h"
#include "net/link.h"
#include "net/sender.h"
#include "net/socket.h"
#include "net/stats_page.h"
#include "net/transport.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr int kFlows = 3;

NetSettings With(ZeroCopyMode mode) {
  NetSettings settings;
  settings.flows = kFlows;
  settings.zero_copy = mode;
  return settings;
}

// Large enough to be worth it.
Plan Large(size_t messages, uint64_t seed = 1) {
  return {.sizes = std::vector<size_t>(messages, (1 << 20) + 77), .window = 8, .seed = seed};
}

class ZeroCopyTest : public testing::Test {
 protected:
  ZeroCopyTest() {
    TakeLines();
    ResetKernel();
  }
  ~ZeroCopyTest() override { ResetKernel(); }

  KernelStandIn& kernel() { return TheKernel(); }
};

// Sends, and overwrites each buffer when its request is complete: the kernel must not read it any
// more.
class Reuser {
 public:
  explicit Reuser(const Link& link) : link_(link) {}

  bool Run(size_t messages, uint64_t seed, const std::function<void(size_t)>& between = nullptr) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < messages; ++i) {
      contents_.push_back(Content(100'000 + random() % 400'000, seed * 100 + i));
    }
    for (const std::vector<std::byte>& content : contents_) {
      buffers_.push_back(content);
      arrivals_.emplace_back(content.size());
    }
    sends_.assign(messages, nullptr);
    receives_.assign(messages, nullptr);
    size_t posted = 0;
    size_t done = 0;
    size_t before = 0;
    auto moved = std::chrono::steady_clock::now();
    const bool ended = Until([&] {
      if (posted < messages && posted < done / 2 + 8) Post(posted++);
      for (size_t i = 0; i < posted && !failed_; ++i) {
        if (Over(&sends_[i])) {
          EXPECT_FALSE(KernelHolds(buffers_[i].data(), buffers_[i].size())) << "message " << i;
          std::ranges::fill(buffers_[i], std::byte{0xee});
          ++done;
        }
        if (Over(&receives_[i])) {
          EXPECT_TRUE(arrivals_[i] == contents_[i]) << "message " << i;
          ++done;
          if (between) between(done);
        }
      }
      const auto now = std::chrono::steady_clock::now();
      if (done != before) {
        before = done;
        moved = now;
      } else if (now - moved > std::chrono::milliseconds(50)) {
        // All posted requests wait for reports that are held back.
        TheKernel().holds_reports = false;
      }
      return failed_ || done == 2 * messages;
    });
    EXPECT_TRUE(ended);
    return ended && !failed_;
  }

 private:
  void Post(size_t i) {
    const size_t bytes = contents_[i].size();
    EXPECT_EQ(Receive(link_.receiver, arrivals_[i].data(), bytes, &receives_[i]), abi::kSuccess);
    EXPECT_EQ(Send(link_.sender, buffers_[i].data(), bytes, &sends_[i]), abi::kSuccess);
    if (sends_[i] == nullptr || receives_[i] == nullptr) Failed("a request");
  }

  bool Over(TransferRequest** request) {
    if (*request == nullptr) return false;
    bool done = false;
    size_t bytes = 0;
    if (Test(*request, &done, &bytes) != abi::kSuccess) Failed("test");
    if (done) *request = nullptr;
    return done;
  }

  void Failed(const char* what) {
    ADD_FAILURE() << what << " failed";
    failed_ = true;
  }

  const Link& link_;
  std::vector<std::vector<std::byte>> contents_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::vector<std::byte>> arrivals_;
  std::vector<TransferRequest*> sends_;
  std::vector<TransferRequest*> receives_;
  bool failed_ = false;
};

TEST_F(ZeroCopyTest, OverALoopbackEachFlowTriesOnceAndDropsIt) {
  Link link(With(ZeroCopyMode::kAuto));
  ASSERT_TRUE(Exchange(link, Large(24)));
  const Counters& counters = link.sender->counters();
  // The remaining reports must not concern complete requests.
  EXPECT_EQ(kernel().taken, kernel().reported);
  EXPECT_GE(counters.copy_reports, 1U);
  EXPECT_LE(counters.copy_reports, uint64_t{kFlows});
  EXPECT_EQ(counters.copy_reports, kernel().taken);
  EXPECT_EQ(counters.zero_copy_drops, counters.copy_reports);
  EXPECT_EQ(counters.uncopied_bytes, 0U);
  // All flows have dropped zero-copy: no more such sends.
  ASSERT_TRUE(
      Until([&] { return counters.zero_copy_drops == kFlows || !Exchange(link, Large(12, 2)); }));
  const uint64_t asked = kernel().asked;
  const uint64_t looks = kernel().looks;
  EXPECT_EQ(kernel().taken, uint64_t{kFlows});
  ASSERT_TRUE(Exchange(link, Large(16, 3)));
  EXPECT_EQ(kernel().asked, asked);
  EXPECT_EQ(kernel().looks, looks);
}

TEST_F(ZeroCopyTest, AFlowThatComesBackDoesNotTryAgain) {
  Link link(With(ZeroCopyMode::kAuto));
  ASSERT_TRUE(Until([&] {
    return link.sender->counters().zero_copy_drops == kFlows || !Exchange(link, Large(12));
  }));
  for (const int fd : SocketsTo(link.end())) ResetSocket(fd);
  ASSERT_TRUE(Exchange(link, Large(16, 2)));
  ASSERT_TRUE(Until([&] { return SocketsTo(link.end()).size() == kFlows + 1; }));
  ASSERT_TRUE(Exchange(link, Large(16, 3)));
  EXPECT_EQ(kernel().taken, uint64_t{kFlows});
}

TEST_F(ZeroCopyTest, OffAsksForNothing) {
  Link link(With(ZeroCopyMode::kOff));
  ASSERT_TRUE(Exchange(link, Large(12)));
  EXPECT_EQ(kernel().asked, 0U);
  EXPECT_EQ(kernel().looks, 0U);
}

TEST_F(ZeroCopyTest, AlwaysGoesOnThoughTheKernelCopies) {
  Link link(With(ZeroCopyMode::kAlways));
  // A slow flow takes small chunks, which are copied.
  ASSERT_TRUE(Until(
      [&] { return link.sender->counters().copy_reports > kFlows || !Exchange(link, Large(12)); }));
  EXPECT_EQ(link.sender->counters().uncopied_bytes, 0U);
  EXPECT_EQ(link.sender->counters().zero_copy_drops, 0U);
}

TEST_F(ZeroCopyTest, KeptWhereTheKernelDoesNotCopy) {
  kernel().hides_copies = true;
  Link link(With(ZeroCopyMode::kAuto));
  const Counters& counters = link.sender->counters();
  for (uint64_t round = 1; round <= 5 && kernel().taken <= uint64_t{kFlows}; ++round) {
    ASSERT_TRUE(Reuser(link).Run(30, round));
  }
  EXPECT_GT(counters.uncopied_bytes, 0U);
  EXPECT_LE(counters.uncopied_bytes, 2 * counters.bytes);
  EXPECT_EQ(counters.copy_reports, 0U);
  EXPECT_EQ(kernel().taken, kernel().reported);
  if (kernel().taken <= uint64_t{kFlows}) {
    GTEST_SKIP() << "flows are so slow here that their chunks are copied after the first";
  }
}

TEST_F(ZeroCopyTest, SmallMessagesAreCopied) {
  kernel().hides_copies = true;
  Link link(With(ZeroCopyMode::kAlways));
  ASSERT_TRUE(Exchange(link, {.sizes = {0, 1, 1000, 16 << 10}, .window = 1}));
  EXPECT_EQ(kernel().asked, 0U);
}

TEST_F(ZeroCopyTest, ARequestIsNotCompleteWhileTheKernelHoldsItsBytes) {
  kernel().hides_copies = true;
  kernel().holds_reports = true;
  Link link(With(ZeroCopyMode::kAlways));
  const std::vector<std::byte> content = Content(4 << 20, 5);
  std::vector<std::byte> buffer(content.size());
  TransferRequest* send = nullptr;
  TransferRequest* receive = link.Receive(&buffer);
  send = link.Send(content);
  ASSERT_EQ(Finish(receive).result, abi::kSuccess);
  EXPECT_EQ(buffer, content);
  bool done = false;
  size_t bytes = 0;
  // All data is delivered, so the flows that delay the application are ended. Still the kernel does
  // not report a release.
  ASSERT_TRUE(Until([&] {
    EXPECT_EQ(net::Test(send, &done, &bytes), abi::kSuccess);
    return done || link.sender->counters().flow_ends != 0;
  }));
  ASSERT_TRUE(Until([&] {
    EXPECT_EQ(net::Test(send, &done, &bytes), abi::kSuccess);
    return done || link.sender->counters().flow_returns != 0;
  }));
  EXPECT_FALSE(done);
  kernel().holds_reports = false;
  EXPECT_EQ(Finish(send).result, abi::kSuccess);
  EXPECT_EQ(kernel().taken, kernel().reported);
  EXPECT_TRUE(Reuser(link).Run(20, 6));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(ZeroCopyTest, AFailedRequestToo) {
  kernel().holds_reports = true;
  Link link(With(ZeroCopyMode::kAlways));
  const std::vector<std::byte> content = Content(4 << 20, 5);
  TransferRequest* send = link.Send(content);
  ASSERT_TRUE(Until([&] { return kernel().taken != 0; }));
  link.CloseListener();
  link.CloseReceiver();
  // The failure is visible when a send is refused.
  TransferRequest* more = nullptr;
  bool done = false;
  size_t bytes = 0;
  ASSERT_TRUE(Until([&] {
    EXPECT_EQ(net::Test(send, &done, &bytes), abi::kSuccess);
    return done || Send(link.sender, content.data(), 0, &more) != abi::kSuccess;
  }));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(net::Test(send, &done, &bytes), abi::kSuccess);
    ASSERT_FALSE(done);
  }
  kernel().holds_reports = false;
  EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  EXPECT_EQ(kernel().taken, kernel().reported);
}

TEST_F(ZeroCopyTest, FlowsDieWithSendsOutstandingAndNoBufferIsReadAfterItsEnd) {
  kernel().hides_copies = true;
  Link link(With(ZeroCopyMode::kAuto));
  size_t killed = 0;
  const auto kill = [&](size_t done) {
    if (done % 7 != 0) return;
    // Some reports are delayed, others are not.
    kernel().holds_reports = done % 2 == 0 && done < 200;
    const std::vector<int> flows = SocketsTo(link.end());
    if (flows.empty()) return;
    const int fd = flows[killed++ % flows.size()];
    if (killed % 3 == 0) {
      shutdown(fd, SHUT_RDWR);
    } else {
      ResetSocket(fd);
    }
  };
  EXPECT_TRUE(Reuser(link).Run(120, 2, kill));
  EXPECT_GE(killed, 10U);
  kernel().holds_reports = false;
  EXPECT_GT(kernel().taken, 0U);
  EXPECT_EQ(link.sender->counters().copy_reports, 0U);
  EXPECT_TRUE(Until([&] { return kernel().taken == kernel().reported; }));
}

TEST_F(ZeroCopyTest, ASenderThatClosesInFlightLeavesNothingToTheKernel) {
  kernel().hides_copies = true;
  Link link(With(ZeroCopyMode::kAlways));
  for (int round = 0; round < 5; ++round) {
    if (round != 0) link.Join();
    const std::vector<std::byte> content = Content(4 << 20, 7);
    std::vector<std::byte> buffer(content.size());
    // With a reader and without one; without, the sockets fill up.
    if (round % 2 == 0) link.Receive(&buffer);
    const uint64_t before = kernel().taken;
    link.Send(content);
    ASSERT_TRUE(Until([&] { return kernel().taken > before; }));
    link.CloseSender();
    EXPECT_EQ(kernel().taken, kernel().reported) << "round " << round;
    EXPECT_FALSE(KernelHolds(content.data(), content.size())) << "round " << round;
    // Close before the buffer's lifetime ends.
    link.CloseReceiver();
  }
}

TEST_F(ZeroCopyTest, ACloseDoesNotWaitForEver) {
  kernel().holds_reports = true;
  Link link(With(ZeroCopyMode::kAlways));
  const std::vector<std::byte> content = Content(4 << 20, 7);
  link.Send(content);
  ASSERT_TRUE(Until([&] { return kernel().taken != 0; }));
  link.CloseSender();
  EXPECT_EQ(kernel().reported, 0U);
}

// Nobody reads, so the kernel keeps the data and only timers trigger checks.
TEST_F(ZeroCopyTest, ToWaitForReportsIsNoWork) {
  Link link(With(ZeroCopyMode::kAlways));
  const std::vector<std::byte> content = Content(16 << 20, 7);
  TransferRequest* send = link.Send(content);
  ASSERT_TRUE(Until([&] { return kernel().taken >= kFlows; }));
  const uint64_t looks = kernel().looks;
  usleep(200'000);
  // A few checks per flow in 20 ms. A thread that does not sleep would make hundreds of thousands.
  EXPECT_LT(kernel().looks - looks, 1000U);
  std::vector<std::byte> buffer(content.size());
  TransferRequest* receive = link.Receive(&buffer);
  EXPECT_EQ(Finish(send).result, abi::kSuccess);
  EXPECT_EQ(Finish(receive).result, abi::kSuccess);
  EXPECT_EQ(buffer, content);
}

TEST_F(ZeroCopyTest, AKernelWithoutItIsAskedOncePerFlow) {
  kernel().option_error = ENOPROTOOPT;
  for (const ZeroCopyMode mode : {ZeroCopyMode::kAuto, ZeroCopyMode::kAlways}) {
    Link link(With(mode));
    ASSERT_TRUE(Exchange(link, Large(12)));
    EXPECT_EQ(kernel().asked, 0U);
    EXPECT_GE(link.sender->counters().zero_copy_drops, 1U);
    EXPECT_EQ(link.sender->counters().flow_ends, 0U);
  }
}

TEST_F(ZeroCopyTest, ARefusedSendIsCopied) {
  for (const int error : {ENOBUFS, EPERM, EFAULT, EINVAL}) {
    ResetKernel();
    kernel().send_error = error;
    Link link(With(ZeroCopyMode::kAuto));
    ASSERT_TRUE(Exchange(link, Large(12)));
    EXPECT_LE(kernel().asked, uint64_t{kFlows});
    EXPECT_EQ(kernel().taken, 0U);
    EXPECT_EQ(link.sender->counters().zero_copy_drops, kernel().asked);
    EXPECT_EQ(link.sender->counters().flow_ends, 0U);
  }
}

TEST_F(ZeroCopyTest, WithoutRoomForReportsSomeSendsAreCopied) {
  kernel().hides_copies = true;
  kernel().send_error = ENOBUFS;
  kernel().refuses_each = 2;
  Link link(With(ZeroCopyMode::kAlways));
  uint64_t seed = 0;
  // The first chunk of each flow is large, however slow it is.
  ASSERT_TRUE(Until([&] { return kernel().asked >= 2 || !Reuser(link).Run(10, ++seed); }));
  EXPECT_GT(kernel().asked, kernel().taken);
  EXPECT_GT(link.sender->counters().uncopied_bytes, 0U);
  EXPECT_EQ(link.sender->counters().flow_ends, 0U);
}

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
