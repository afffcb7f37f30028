// SPDX-License-Identifier: Apache-2.0
// Calls that flows make on a receiver's buffers.
#include "net/receiver.h"
#include "net/kernel_stand_in.h"
#include "net/link.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr uint64_t kGrain = 8 << 10;
constexpr uint64_t kWhole = 8 * kGrain;

NetSettings SmallStash() {
  NetSettings settings;
  settings.flows = 2;
  settings.stash_bytes = 10'000;
  return settings;
}

class ReceiverTest : public testing::Test {
 protected:
  ReceiverTest() : link_(SmallStash()), buffer_(kWhole) {
    TakeLines();
    EXPECT_EQ(Receive(link_.receiver, buffer_.data(), kWhole, &request_), abi::kSuccess);
    EXPECT_EQ(receiver().Locate(Part(0, 8)), Receiver::ChunkState::kPosted);
  }

  Receiver& receiver() { return *link_.receiver; }

  static DataHeader Part(uint64_t first, uint64_t last) {
    return {.request = 0,
            .offset = first * kGrain,
            .total = kWhole,
            .length = static_cast<uint32_t>((last - first) * kGrain)};
  }

  // A second flow pins a part that overlaps one which a first flow is reading; then the first one
  // ends.
  std::optional<std::byte*> PinOverlapping(const DataHeader& read, const DataHeader& wanted,
                                           bool arrives) {
    EXPECT_TRUE(receiver().Pin(read).has_value());
    std::optional<std::byte*> place;
    std::atomic<bool> waits = false;
    std::atomic<bool> over = false;
    std::thread other([&] {
      const YieldCount yields;
      std::thread observer([&] { waits = Until([&] { return yields.value() != 0 || over; }); });
      place = receiver().Pin(wanted);
      over = true;
      observer.join();
    });
    EXPECT_TRUE(Until([&] { return waits.load(); }));
    EXPECT_FALSE(over) << "two threads write the same bytes";
    receiver().Unpin(read, arrives);
    other.join();
    return place;
  }

  Link link_;
  std::vector<std::byte> buffer_;
  TransferRequest* request_ = nullptr;
};

TEST_F(ReceiverTest, APartIsWrittenByOneThreadAtATime) {
  // The data has arrived when the second thread continues.
  EXPECT_EQ(PinOverlapping(Part(0, 4), Part(0, 4), true), std::nullopt);
  // It has not arrived: the second flow reads it.
  EXPECT_EQ(PinOverlapping(Part(4, 6), Part(4, 6), false), buffer_.data() + 4 * kGrain);
  receiver().Unpin(Part(4, 6), true);
  // With different cuts.
  EXPECT_EQ(PinOverlapping(Part(6, 7), Part(5, 8), true), buffer_.data() + 5 * kGrain);
  receiver().Unpin(Part(5, 8), true);
  EXPECT_EQ(Finish(request_).result, abi::kSuccess);
}

TEST_F(ReceiverTest, PartsThatDoNotOverlapAreWrittenAtOnce) {
  EXPECT_TRUE(receiver().Pin(Part(0, 4)).has_value());
  EXPECT_TRUE(receiver().Pin(Part(4, 8)).has_value());
  receiver().Unpin(Part(0, 4), true);
  receiver().Unpin(Part(4, 8), true);
  EXPECT_EQ(Finish(request_).result, abi::kSuccess);
}

TEST_F(ReceiverTest, AFailedRequestIsReportedWhenNobodyWritesItsBufferAnyMore) {
  EXPECT_TRUE(receiver().Pin(Part(0, 4)).has_value());
  receiver().FailByException("out of memory");
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "receiving from 127.0.0.1:", "out of memory"}));
  bool done = false;
  EXPECT_EQ(nccltune::net::Test(request_, &done, nullptr), abi::kSuccess);
  EXPECT_FALSE(done);
  EXPECT_FALSE(receiver().Pin(Part(4, 8)).has_value()) << "nothing more is written";
  receiver().Unpin(Part(0, 4), true);
  EXPECT_EQ(nccltune::net::Test(request_, &done, nullptr), abi::kSystemError);
}

TEST_F(ReceiverTest, WhatIsNotPostedIsKeptUpToALimit) {
  const auto stash = [&](uint64_t request, size_t bytes) {
    const DataHeader header = {
        .request = request, .offset = 0, .total = bytes, .length = static_cast<uint32_t>(bytes)};
    return receiver().Stash(header, std::vector<std::byte>(bytes, std::byte{5}));
  };
  EXPECT_TRUE(stash(1, 6'000));
  EXPECT_FALSE(stash(2, 4'001));
  EXPECT_TRUE(stash(2, 4'000));
  EXPECT_FALSE(stash(3, 1));
  // Posting a request frees space.
  std::vector<std::byte> kept(6'000);
  TransferRequest* request = nullptr;
  ASSERT_EQ(Receive(link_.receiver, kept.data(), kept.size(), &request), abi::kSuccess);
  EXPECT_EQ(Finish(request).result, abi::kSuccess);
  EXPECT_EQ(kept, std::vector<std::byte>(6'000, std::byte{5}));
  EXPECT_TRUE(stash(3, 6'000));
  EXPECT_FALSE(stash(4, 1));
}

}  // namespace
}  // namespace nccltune::net
