// SPDX-License-Identifier: Apache-2.0
// A peer that knows the token but violates the protocol.
#include "net/kernel_stand_in.h"
#include "net/link.h"
#include "net/receiver.h"
#include "net/transport.h"
#include "net/wire.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr uint64_t kGranuleBytes = 8 << 10;
constexpr uint64_t kTotal = 5 * kGranuleBytes + 3;

// The receiving end is ours; the sending end is a set of plain sockets.
class OddPeerTest : public testing::Test {
 protected:
  OddPeerTest() : content_(Content(kTotal, 1)), buffer_(kTotal + 100, kUntouched) {
    TakeLines();
    ResetKernel();
    link_.CloseSender();
    link_.CloseReceiver();
    express_ = Join(0);
    bulk_ = Join(1);
    EXPECT_TRUE(Until([&] {
      EXPECT_EQ(Accept(link_.listener, &link_.receiver), abi::kSuccess);
      return link_.receiver != nullptr;
    }));
    EXPECT_EQ(Receive(link_.receiver, buffer_.data(), kTotal, &request_), abi::kSuccess);
  }

  std::unique_ptr<Stranger> Join(uint16_t flow) {
    HandleArray handle = link_.handle();
    Hello hello;
    hello.token = ReadHandle(handle)->token;
    hello.connection = 4711;
    hello.flow = flow;
    hello.flows = 2;
    auto stranger = std::make_unique<Stranger>(link_.end());
    stranger->SendBytes(Encode(hello));
    return stranger;
  }

  static void SendChunk(Stranger& flow, const DataHeader& header,
                        std::span<const std::byte> content) {
    flow.SendBytes(Encode(header));
    flow.SendBytes(content.subspan(header.offset, header.length));
  }

  static DataHeader Chunk(uint64_t first, uint64_t end) {
    const uint64_t offset = first * kGranuleBytes;
    const uint64_t length = std::min(end * kGranuleBytes, kTotal) - offset;
    return {
        .request = 0, .offset = offset, .total = kTotal, .length = static_cast<uint32_t>(length)};
  }

  void ExpectAllThere() {
    const RequestResult ended = Finish(request_);
    EXPECT_EQ(ended.result, abi::kSuccess);
    EXPECT_EQ(ended.bytes, kTotal);
    EXPECT_TRUE(std::equal(content_.begin(), content_.end(), buffer_.begin()));
    EXPECT_TRUE(std::all_of(buffer_.begin() + kTotal, buffer_.end(),
                            [](std::byte each) { return each == kUntouched; }));
  }

  // Expects that the flow ends, nothing is written, and the message arrives complete over a
  // reconnected flow.
  void ExpectRefused(std::span<const std::byte> bytes) {
    bulk_->SendBytes(bytes);
    ASSERT_TRUE(Until([&] { return bulk_->Closed(); }));
    bulk_ = Join(1);
    ASSERT_TRUE(Until([&] { return bulk_->Welcomed().has_value(); }));
    ASSERT_EQ(bulk_->Welcomed()->status, WelcomeStatus::kTaken);
  }

  static constexpr std::byte kUntouched{0xc7};

  Link link_;
  std::unique_ptr<Stranger> express_;
  std::unique_ptr<Stranger> bulk_;
  std::vector<std::byte> content_;
  std::vector<std::byte> buffer_;
  TransferRequest* request_ = nullptr;
};

// A receiver's socket that is full, because the peer does not read.
class FullFlow {
 public:
  explicit FullFlow(Stranger& peer) : peer_(peer) {
    EXPECT_TRUE(Until([&] { return peer.Welcomed().has_value(); }));
    const std::vector<int> receiver = SocketsTo(LocalEnd(peer.fd()));
    EXPECT_EQ(receiver.size(), 1U);
    if (receiver.size() != 1) return;
    // Buffers whose sizes are set do not grow.
    const int size = 16 << 10;
    EXPECT_EQ(setsockopt(receiver[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    EXPECT_EQ(setsockopt(peer.fd(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    const std::vector<std::byte> filler(64 << 10);
    // After a large send has failed, the kernel still takes single bytes, and the peer's kernel
    // takes more for a moment.
    for (int full = 0; full < 20; ++full) {
      for (const size_t bytes : {filler.size(), size_t{1}}) {
        ssize_t sent = 0;
        while ((sent = send(receiver[0], filler.data(), bytes, MSG_DONTWAIT)) > 0) {
          filled_ += static_cast<size_t>(sent);
          full = 0;
        }
      }
      usleep(1000);
    }
  }

  // Makes the peer read. Returns the frames that the receiver has sent.
  std::vector<ReverseFrame> Frames() {
    std::vector<ReverseFrame> frames;
    const std::span<const std::byte> all = peer_.ReceivedAfterWelcome();
    for (size_t at = filled_; at + kReverseFrameBytes <= all.size(); at += kReverseFrameBytes) {
      const auto frame = DecodeReverseFrame(all.subspan(at).first<kReverseFrameBytes>());
      EXPECT_TRUE(frame.has_value());
      if (frame) frames.push_back(*frame);
    }
    return frames;
  }

  // Waits for the acknowledgement of so many frames.
  bool IsAcknowledged(uint64_t count) {
    return Until([&] {
      return std::ranges::any_of(Frames(), [&](const ReverseFrame& frame) {
        return frame.type == FrameType::kAck && frame.value == count;
      });
    });
  }

 private:
  Stranger& peer_;
  size_t filled_ = 0;
};

TEST_F(OddPeerTest, TheNewestAcknowledgementIsSentWhenTheSocketHasRoom) {
  FullFlow full(*bulk_);
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
  EXPECT_TRUE(Until([] { return TheKernel().blocked != 0; })) << "no acknowledgement was tried";
  // The acknowledgement of the first chunk waits when the second chunk arrives.
  std::vector<std::byte> next(10);
  TransferRequest* request = link_.Receive(&next);
  SendChunk(*bulk_, {.request = 1, .offset = 0, .total = 10, .length = 10}, content_);
  EXPECT_EQ(Finish(request).result, abi::kSuccess);
  EXPECT_TRUE(full.IsAcknowledged(2));
  EXPECT_EQ(full.Frames().size(), 1U) << "older ones are not sent";
}

TEST_F(OddPeerTest, TheExpressFlowSendsItsNewestAcknowledgementWhenTheSocketHasRoom) {
  constexpr uint64_t kMessages = 33;  // an acknowledgement is due after 32
  FullFlow full(*express_);
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
  for (uint64_t number = 1; number <= kMessages; ++number) {
    TransferRequest* request = nullptr;
    ASSERT_EQ(Receive(link_.receiver, buffer_.data(), 10, &request), abi::kSuccess);
    SendChunk(*express_, {.request = number, .offset = 0, .total = 10, .length = 10}, content_);
    EXPECT_EQ(Finish(request).result, abi::kSuccess);
  }
  EXPECT_TRUE(full.IsAcknowledged(kMessages));
}

TEST_F(OddPeerTest, AReceiverThatIsClosedSendsTheAcknowledgementThatIsDue) {
  FullFlow full(*bulk_);
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
  EXPECT_TRUE(Until([] { return TheKernel().blocked != 0; })) << "no acknowledgement was tried";
  link_.CloseReceiver();
  EXPECT_TRUE(full.IsAcknowledged(1));
  EXPECT_TRUE(Until([&] { return full.Frames().back().type == FrameType::kBye; }));
}

TEST_F(OddPeerTest, ChunksInAnyOrderAndOverEachOther) {
  const std::vector<std::byte> other(kTotal, std::byte{0xee});
  SendChunk(*bulk_, Chunk(4, 6), content_);
  SendChunk(*bulk_, Chunk(1, 3), content_);
  SendChunk(*bulk_, Chunk(1, 2), other);
  SendChunk(*bulk_, Chunk(4, 6), other);
  SendChunk(*bulk_, Chunk(0, 3), content_);
  SendChunk(*bulk_, Chunk(2, 3), other);
  SendChunk(*bulk_, Chunk(2, 5), content_);
  SendChunk(*bulk_, Chunk(0, 6), other);
  ExpectAllThere();
}

TEST_F(OddPeerTest, TheExpressFlowMayCarryChunksAsWell) {
  SendChunk(*bulk_, Chunk(3, 6), content_);
  SendChunk(*express_, Chunk(0, 4), content_);
  ExpectAllThere();
}

TEST_F(OddPeerTest, ALateCopyDoesNotTouchTheBufferOfADoneRequest) {
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
  const std::vector<std::byte> other(kTotal, std::byte{0xee});
  SendChunk(*bulk_, Chunk(0, 6), other);
  SendChunk(*express_, Chunk(0, 6), other);
  // The next request uses the same flow, so the copy was read before it.
  std::vector<std::byte> next(10);
  for (Stranger* const flow : {bulk_.get(), express_.get()}) {
    TransferRequest* request = link_.Receive(&next);
    const DataHeader header = {
        .request = flow == bulk_.get() ? 1U : 2U, .offset = 0, .total = 10, .length = 10};
    SendChunk(*flow, header, content_);
    EXPECT_EQ(Finish(request).result, abi::kSuccess);
  }
  EXPECT_TRUE(std::equal(content_.begin(), content_.end(), buffer_.begin()));
}

TEST_F(OddPeerTest, WhatIsNoFrameEndsItsFlowAlone) {
  const auto good = Encode(Chunk(0, 2));
  auto unknown = good;
  unknown[0] = std::byte{0x47};
  auto reserved = good;
  reserved[2] = std::byte{1};
  DataHeader beyond = Chunk(0, 2);
  beyond.offset = 5 * kGranuleBytes;
  DataHeader wraps = Chunk(0, 1);
  wraps.offset = UINT64_MAX - kGranuleBytes + 1;
  DataHeader off_grid = Chunk(0, 1);
  off_grid.offset = 100;
  DataHeader empty = Chunk(0, 1);
  empty.length = 0;
  DataHeader large = Chunk(0, 1);
  large.total = UINT64_MAX;
  ExpectRefused(unknown);
  ExpectRefused(reserved);
  for (const DataHeader& header : {beyond, wraps, off_grid, empty, large}) {
    ExpectRefused(Encode(header));
  }
  ExpectRefused(Content(4096, 99));
  EXPECT_TRUE(std::all_of(buffer_.begin(), buffer_.end(),
                          [](std::byte each) { return each == kUntouched; }));
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
}

TEST_F(OddPeerTest, ARequestHasOneSize) {
  SendChunk(*bulk_, Chunk(0, 2), content_);
  ExpectRefused(Encode(DataHeader{.request = 0, .offset = 0, .total = 100, .length = 100}));
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
}

TEST_F(OddPeerTest, ARequestFarAheadIsRefused) {
  ExpectRefused(Encode(DataHeader{.request = 1 + kSlots, .offset = 0, .total = 8, .length = 8}));
  ExpectRefused(Encode(DataHeader{.request = UINT64_MAX, .offset = 0, .total = 8, .length = 8}));
  SendChunk(*bulk_, Chunk(0, 6), content_);
  ExpectAllThere();
}

TEST_F(OddPeerTest, WhatComesBeforeItsRequestDoesNotStandInTheWay) {
  // A part of the first request comes after data of the second one, which is not posted.
  const std::vector<std::byte> second = Content(50'000, 2);
  SendChunk(*bulk_, Chunk(0, 3), content_);
  SendChunk(*bulk_, {.request = 1, .offset = 0, .total = 50'000, .length = 50'000}, second);
  SendChunk(*bulk_, Chunk(3, 6), content_);
  ExpectAllThere();
  std::vector<std::byte> buffer(50'000);
  TransferRequest* request = link_.Receive(&buffer);
  EXPECT_EQ(Finish(request).result, abi::kSuccess);
  EXPECT_EQ(buffer, second);
}

TEST_F(OddPeerTest, AFrameInSmallPieces) {
  std::vector<std::byte> bytes;
  for (const DataHeader& header : {Chunk(0, 2), Chunk(2, 6)}) {
    const auto encoded = Encode(header);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
    const auto from = content_.begin() + static_cast<ptrdiff_t>(header.offset);
    bytes.insert(bytes.end(), from, from + header.length);
  }
  std::mt19937 random(4);
  for (std::span<const std::byte> left(bytes); !left.empty();) {
    const size_t piece = std::min<size_t>(1 + random() % 50, left.size());
    bulk_->SendBytes(left.first(piece));
    left = left.subspan(piece);
  }
  ExpectAllThere();
}

// Calls that flows make on a receiver's buffers.

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
  TransferRequest* request = link_.Receive(&kept);
  EXPECT_EQ(Finish(request).result, abi::kSuccess);
  EXPECT_EQ(kept, std::vector<std::byte>(6'000, std::byte{5}));
  EXPECT_TRUE(stash(3, 6'000));
  EXPECT_FALSE(stash(4, 1));
}

}  // namespace
}  // namespace nccltune::net
