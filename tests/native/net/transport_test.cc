// SPDX-License-Identifier: Apache-2.0
#include "net/transport.h"
#include "net/clock.h"
#include "net/link.h"
#include "testing.h"

namespace nccltune::net {
namespace {

class TransportTest : public testing::Test {
 protected:
  TransportTest() { TakeLines(); }
};

TEST_F(TransportTest, ConnectIsTheFirstCalled) {
  Link link;
  link.CloseSender();
  link.CloseReceiver();
  HandleArray handle = link.handle();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Connect(link.context(), Loopback(), handle, &link.sender), abi::kSuccess);
    ASSERT_EQ(link.sender, nullptr) << "nobody has accepted";
  }
  ASSERT_TRUE(Until([&] {
    EXPECT_EQ(Accept(link.listener, &link.receiver), abi::kSuccess);
    return link.receiver != nullptr;
  }));
  ASSERT_TRUE(Until([&] {
    EXPECT_EQ(Connect(link.context(), Loopback(), handle, &link.sender), abi::kSuccess);
    return link.sender != nullptr;
  }));
  EXPECT_TRUE(Exchange(link, {.sizes = {1000, 100'000}}));
}

TEST_F(TransportTest, AcceptIsTheFirstCalled) {
  Link link;
  link.CloseSender();
  link.CloseReceiver();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Accept(link.listener, &link.receiver), abi::kSuccess);
    ASSERT_EQ(link.receiver, nullptr) << "nobody is there";
  }
  link.Join();
  EXPECT_TRUE(Exchange(link, {.sizes = {1000, 100'000}}));
}

TEST_F(TransportTest, MessagesOfEverySizeArrive) {
  Link link;
  const size_t eager = NetSettings().eager_bytes;
  std::vector<size_t> sizes = {0, 1, 7, 8, 4095, 4096, 4097};
  for (const size_t size : {eager, size_t{64} << 10, size_t{128} << 10, size_t{256} << 10,
                            size_t{1} << 20, size_t{8} << 20}) {
    sizes.insert(sizes.end(), {size - 1, size, size + 1});
  }
  EXPECT_TRUE(Exchange(link, {.sizes = sizes, .window = 1}));
  EXPECT_TRUE(Exchange(link, {.sizes = sizes, .window = 32, .seed = 2}));
}

TEST_F(TransportTest, AReceiveMayBeLargerThanItsMessage) {
  Link link;
  EXPECT_TRUE(Exchange(link, {.sizes = {0, 1, 1000, 40'000, 300'000, 2 << 20}, .slack = 100'000}));
}

TEST_F(TransportTest, RandomSizesInRandomOrder) {
  Link link;
  std::mt19937_64 random(3);
  Plan plan = {.sizes = {}, .slack = 10, .seed = 3};
  for (int i = 0; i < 600; ++i) plan.sizes.push_back(random() >> (43 + random() % 21));
  EXPECT_TRUE(Exchange(link, plan));
}

TEST_F(TransportTest, ThreadsThatLookOutAndOthersServeOneConnection) {
  NetSettings settings;
  settings.threads = 6;
  settings.flows = 4;
  Link link(settings);
  // Messages for one spinning thread, with pauses in which it sleeps, and messages for all threads.
  Plan plan = {.sizes = {}, .window = 4, .seed = 5};
  for (size_t i = 0; i < 200; ++i) plan.sizes.push_back(i % 20 == 0 ? 700'000 : 17'000 + 400 * i);
  plan.between = [](size_t received) {
    if (received % 16 == 0) usleep(3000);
  };
  EXPECT_TRUE(Exchange(link, plan));
}

TEST_F(TransportTest, ThirtyTwoAreOutstandingAtEachEndAndNoMore) {
  for (const size_t bytes : {size_t{100}, size_t{200'000}}) {
    Link link;
    const std::vector<std::byte> content = Content(bytes, 1);
    std::vector<std::vector<std::byte>> buffers(kMostRequests, std::vector<std::byte>(bytes));
    std::vector<TransferRequest*> requests;
    for (std::vector<std::byte>& buffer : buffers) {
      requests.push_back(link.Receive(&buffer));
      requests.push_back(link.Send(content));
    }
    TransferRequest* more = nullptr;
    ASSERT_EQ(Receive(link.receiver, buffers[0].data(), bytes, &more), abi::kSuccess);
    EXPECT_EQ(more, nullptr);
    ASSERT_EQ(Send(link.sender, content.data(), bytes, &more), abi::kSuccess);
    EXPECT_EQ(more, nullptr);
    // Newest first.
    std::ranges::reverse(requests);
    for (TransferRequest* const request : requests) {
      const RequestResult ended = Finish(request);
      ASSERT_EQ(ended.result, abi::kSuccess);
      ASSERT_EQ(ended.bytes, bytes);
    }
    for (const std::vector<std::byte>& buffer : buffers) EXPECT_EQ(buffer, content);
  }
}

TEST_F(TransportTest, MessagesWaitForTheReceivesThatComeLater) {
  Link link;
  std::vector<std::vector<std::byte>> contents;
  std::vector<TransferRequest*> sends;
  for (size_t i = 0; i < kMostRequests; ++i) {
    contents.push_back(Content(i % 2 == 0 ? 1000 : 300'000, i));
    sends.push_back(link.Send(contents[i]));
  }
  for (const std::vector<std::byte>& content : contents) {
    std::vector<std::byte> buffer(content.size());
    TransferRequest* request = link.Receive(&buffer);
    ASSERT_EQ(Finish(request).result, abi::kSuccess);
    EXPECT_EQ(buffer, content);
  }
  for (TransferRequest* const request : sends) EXPECT_EQ(Finish(request).result, abi::kSuccess);
}

// With few flows and threads, without copies of small messages, and with many flows.
TEST_F(TransportTest, SettingsOfAllSizes) {
  const std::pair<NetSettings, Plan> cases[] = {
      {{.flows = 1, .threads = 2},
       {.sizes = {0, 1, 40'000, 2 << 20, 5, 1 << 20, 70'000}, .slack = 3}},
      {{.eager_bytes = 0}, {.sizes = {0, 1, 5, 0, 1000, 40'000, 0, 300'000}}},
      {{.flows = 64}, {.sizes = {8 << 20, 1, 3 << 20, 0}}}};
  for (const auto& [settings, plan] : cases) EXPECT_TRUE(Exchange(Link(settings), plan));
}

TEST_F(TransportTest, SeveralConnectionsThroughOneListener) {
  Link first;
  std::vector<Sender*> senders;
  std::vector<Receiver*> receivers;
  for (int i = 0; i < 4; ++i) {
    senders.push_back(std::exchange(first.sender, nullptr));
    receivers.push_back(std::exchange(first.receiver, nullptr));
    first.Join();
    ASSERT_TRUE(first.stands());
  }
  // All connections at once; each sends as many messages as its number.
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::vector<std::byte>> buffers;
  std::vector<TransferRequest*> requests;
  for (size_t i = 0; i < senders.size(); ++i) {
    contents.push_back(Content(500'000 + i, i));
    buffers.emplace_back(500'000 + i);
    ASSERT_EQ(Receive(receivers[i], buffers[i].data(), buffers[i].size(), &requests.emplace_back()),
              abi::kSuccess);
    ASSERT_EQ(Send(senders[i], contents[i].data(), contents[i].size(), &requests.emplace_back()),
              abi::kSuccess);
  }
  EXPECT_TRUE(Exchange(first, {.sizes = {1 << 20, 10}}));
  for (TransferRequest* const request : requests) EXPECT_EQ(Finish(request).result, abi::kSuccess);
  EXPECT_EQ(buffers, contents);
  for (Sender* const sender : senders) Close(sender);
  for (Receiver* const receiver : receivers) Close(receiver);
}

TEST_F(TransportTest, AConnectionOutlivesItsListener) {
  Link link;
  link.CloseListener();
  EXPECT_TRUE(Exchange(link, {.sizes = {1000, 1 << 20}}));
}

TEST_F(TransportTest, AMessageLargerThanItsReceiveIsInvalidUsage) {
  for (const size_t bytes : {size_t{1001}, size_t{2} << 20}) {
    Link link;
    const std::vector<std::byte> content = Content(bytes, 1);
    std::vector<std::byte> buffer(bytes, std::byte{9});
    TransferRequest* receive = nullptr;
    ASSERT_EQ(Receive(link.receiver, buffer.data(), bytes - 1, &receive), abi::kSuccess);
    link.Send(content);
    EXPECT_EQ(Finish(receive).result, abi::kInvalidUsage);
    EXPECT_EQ(buffer, std::vector<std::byte>(bytes, std::byte{9})) << "nothing is written";
    EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "a message of " + std::to_string(bytes),
                                      "a receive of " + std::to_string(bytes - 1)}));
    TransferRequest* again = nullptr;
    EXPECT_EQ(Receive(link.receiver, buffer.data(), bytes, &again), abi::kInvalidUsage);
    EXPECT_EQ(again, nullptr);
    // The sender may still read its buffers.
    link.CloseAll();
  }
}

TEST_F(TransportTest, CloseWithRequestsInFlight) {
  for (const bool sender_first : {true, false}) {
    Link link;
    const std::vector<std::byte> content = Content(4 << 20, 1);
    std::vector<std::vector<std::byte>> buffers(8, std::vector<std::byte>(content.size()));
    for (std::vector<std::byte>& buffer : buffers) {
      link.Receive(&buffer);
      link.Send(content);
    }
    if (sender_first) link.CloseSender();
    link.CloseReceiver();
    link.CloseSender();
    // Nobody may write into the buffers any more.
    const std::vector<std::vector<std::byte>> then = buffers;
    const Link next;
    EXPECT_TRUE(Exchange(next, {.sizes = {1 << 20}}));
    EXPECT_EQ(buffers, then);
  }
}

TEST_F(TransportTest, AnOutstandingReceiveFailsWhenThePeerHasClosed) {
  Link link;
  ASSERT_TRUE(Exchange(link, {.sizes = {10, 100'000}}));
  std::vector<std::byte> buffer(1 << 20);
  TransferRequest* receive = link.Receive(&buffer);
  link.CloseSender();
  EXPECT_EQ(Finish(receive).result, abi::kRemoteError);
  EXPECT_EQ(Finish(receive).result, abi::kRemoteError) << "it is final";
  EXPECT_EQ(Receive(link.receiver, buffer.data(), buffer.size(), &receive), abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "receiving from 127.0.0.1:", "on lo", "closed"}));
}

TEST_F(TransportTest, AnOutstandingSendFailsWhenThePeerHasClosedAll) {
  Link link;
  link.CloseListener();
  ASSERT_TRUE(Exchange(link, {.sizes = {10, 100'000}}));
  const std::string peer = link.end().Name();
  link.CloseReceiver();
  const std::vector<std::byte> content = Content(4 << 20, 1);
  TransferRequest* send = nullptr;
  const abi::Result begun = Send(link.sender, content.data(), content.size(), &send);
  if (begun == abi::kSuccess) {
    ASSERT_NE(send, nullptr);
    EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  } else {
    EXPECT_EQ(begun, abi::kRemoteError);
  }
  EXPECT_EQ(Send(link.sender, content.data(), content.size(), &send), abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"sending to " + peer, "on lo"}));
}

// Returns the number of sockets of this process that are connected to the listener and not
// accepted.
size_t Dialled(const Link& link) { return SocketsTo(link.end()).size(); }

// Up to interface v10, only a timeout ends an attempt.
TEST_F(TransportTest, AConnectThatNobodyAsksAboutIsGivenUpAfterAMinute) {
  Link link;
  link.CloseSender();
  link.CloseReceiver();
  ASSERT_TRUE(Until([&] { return Dialled(link) == 0; }));
  HandleArray handle = link.handle();
  const int64_t before = NowNs();
  ASSERT_EQ(Connect(link.context(), Loopback(), handle, &link.sender), abi::kSuccess);
  const size_t flows = Dialled(link);
  ASSERT_GE(flows, 3U);
  ReleaseForgotten(before + 59 * kNsPerSecond);
  EXPECT_EQ(Dialled(link), flows);
  ReleaseForgotten(NowNs() + 62 * kNsPerSecond);
  EXPECT_EQ(Dialled(link), 0U);
  // A process that was only stopped starts a new attempt.
  link.Establish(link.context(), handle);
  Sender* again = nullptr;
  EXPECT_EQ(Connect(link.context(), Loopback(), handle, &again), abi::kInternalError)
      << "it is complete";
  EXPECT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}}));
}

TEST_F(TransportTest, TheAttemptsOfACommunicatorEndWithIt) {
  Link link;
  link.CloseSender();
  link.CloseReceiver();
  ASSERT_TRUE(Until([&] { return Dialled(link) == 0; }));
  ConnectionContext aborted = link.context();
  aborted.owner = NewOwner();
  ConnectionContext other = link.context();
  other.owner = NewOwner();
  HandleArray of_aborted = link.handle();
  HandleArray of_other = link.handle();
  ASSERT_EQ(Connect(aborted, Loopback(), of_aborted, &link.sender), abi::kSuccess);
  const size_t flows = Dialled(link);
  ASSERT_EQ(Connect(other, Loopback(), of_other, &link.sender), abi::kSuccess);
  ASSERT_EQ(Dialled(link), 2 * flows);
  // If the owner is known, a long time without calls does not matter.
  ReleaseForgotten(NowNs() + 3600 * kNsPerSecond);
  EXPECT_EQ(Dialled(link), 2 * flows);
  Release(aborted.owner);
  EXPECT_EQ(Dialled(link), flows);
  link.Establish(other, of_other);
  EXPECT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}}));
}

TEST_F(TransportTest, AnAttemptIsOnlyFoundWithItsToken) {
  Link link;
  const Link other;
  HandleArray handle = link.handle();
  Sender* sender = nullptr;
  ASSERT_EQ(Connect(link.context(), Loopback(), handle, &sender), abi::kSuccess);
  HandleArray forged = other.handle();
  SetAttempt(forged, AttemptOf(handle));
  EXPECT_EQ(Connect(link.context(), Loopback(), forged, &sender), abi::kInternalError);
  EXPECT_EQ(sender, nullptr);
}

TEST_F(TransportTest, RubbishIsNoHandle) {
  Link link;
  Sender* sender = nullptr;
  for (const uint8_t value : {uint8_t{0}, uint8_t{0xff}}) {
    HandleArray rubbish;
    rubbish.fill(std::byte{value});
    SetAttempt(rubbish, 0);
    EXPECT_EQ(Connect(link.context(), Loopback(), rubbish, &sender), abi::kInvalidUsage);
    EXPECT_EQ(sender, nullptr);
    EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "handle is not nccltune's", "NCCL_NET_PLUGIN"}));
  }
}

TEST_F(TransportTest, TheNumberOfAnAttemptThatIsNotOursIsAnError) {
  Link link;
  HandleArray handle = link.handle();
  SetAttempt(handle, UINT64_MAX);
  Sender* sender = nullptr;
  EXPECT_NE(Connect(link.context(), Loopback(), handle, &sender), abi::kSuccess);
  EXPECT_EQ(sender, nullptr);
}

TEST_F(TransportTest, AHandleOfAnotherReleaseIsRefusedWithBothNumbers) {
  Link link;
  HandleArray handle = link.handle();
  Invitation invitation = *ReadHandle(handle);
  invitation.release = kWireRelease + 6;
  WriteHandle(invitation, handle);
  Sender* sender = nullptr;
  EXPECT_EQ(Connect(link.context(), Loopback(), handle, &sender), abi::kInvalidUsage);
  EXPECT_EQ(sender, nullptr);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "release " + std::to_string(kWireRelease + 6),
                                    "ours " + std::to_string(kWireRelease)}));
}

TEST_F(TransportTest, ListeningOnPortsThatAreAllTakenNamesTheSetting) {
  Link taken;
  NetSettings settings;
  settings.ports = {taken.end().port(), taken.end().port()};
  Listener* listener = nullptr;
  HandleArray handle = {};
  EXPECT_NE(Listen(ContextWith(settings), Loopback(), handle, &listener), abi::kSuccess);
  EXPECT_EQ(listener, nullptr);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "cannot listen on lo", "NCCLTUNE_NET_PORTS"}));
}

TEST_F(TransportTest, NullIsClosedAlready) {
  EXPECT_EQ(Close(static_cast<Listener*>(nullptr)), abi::kSuccess);
  EXPECT_EQ(Close(static_cast<Sender*>(nullptr)), abi::kSuccess);
  EXPECT_EQ(Close(static_cast<Receiver*>(nullptr)), abi::kSuccess);
}

// The listener is still open for a second connection when the first one ends.
TEST_F(TransportTest, AConnectionThatHasEndedIsNotTakenForANewOne) {
  Link link;
  ASSERT_TRUE(Exchange(link, {.sizes = {10, 100'000}}));
  const std::vector<std::byte> content = Content(8 << 20, 1);
  TransferRequest* send = link.Send(content);
  link.CloseReceiver();
  abi::Result result = abi::kSuccess;
  EXPECT_TRUE(Until([&] {
    bool done = false;
    result = nccltune::net::Test(send, &done, nullptr);
    EXPECT_EQ(Accept(link.listener, &link.receiver), abi::kSuccess);
    return done || result != abi::kSuccess || link.receiver != nullptr;
  }));
  EXPECT_EQ(link.receiver, nullptr) << "nobody has connected";
  EXPECT_EQ(result, abi::kRemoteError);
}

TEST_F(TransportTest, WhatWasCompleteIsStillDeliveredAfterClose) {
  Link link;
  const std::vector<std::byte> content = Content(10'000, 1);
  TransferRequest* send = nullptr;
  for (int i = 0; i < 10; ++i) {
    send = link.Send(content);
    ASSERT_EQ(Finish(send).result, abi::kSuccess);
  }
  // The small messages take the express flow, whose socket is the oldest.
  const SocketEndpoint express = LocalEnd(SocketsTo(link.end()).front());
  link.CloseSender();
  // A thread closes the sockets. Before that it would read the acknowledgement.
  ASSERT_TRUE(Until([&] { return Dialled(link) == 0; }));
  for (int i = 0; i < 10; ++i) {
    std::vector<std::byte> buffer(content.size());
    TransferRequest* receive = nullptr;
    ASSERT_EQ(Receive(link.receiver, buffer.data(), buffer.size(), &receive), abi::kSuccess) << i;
    ASSERT_NE(receive, nullptr);
    ASSERT_EQ(Finish(receive).result, abi::kSuccess) << i;
    EXPECT_EQ(buffer, content);
    // Nobody reads the acknowledgement of the first message: the kernel resets its socket, which
    // then has no peer.
    if (i == 0) {
      EXPECT_TRUE(Until([&] { return SocketsTo(express).empty(); }));
    }
  }
}

TEST(RequestDepth, IsThereWithSixRequestsAndGoneAMillisecondLater) {
  RequestDepth depth;
  EXPECT_FALSE(depth.IsDeep(NowNs()));
  depth.RecordHeld(5);
  EXPECT_FALSE(depth.IsDeep(NowNs()));
  const int64_t before = NowNs();
  depth.RecordHeld(6);
  const int64_t after = NowNs();
  EXPECT_TRUE(depth.IsDeep(before));
  EXPECT_FALSE(depth.IsDeep(after + 2 * kNsPerMs));
}

TEST(RequestDepth, IsNotTakenAwayByFewerRequests) {
  RequestDepth depth;
  const int64_t before = NowNs();
  depth.RecordHeld(6);
  depth.RecordHeld(1);
  EXPECT_TRUE(depth.IsDeep(before));
}

}  // namespace
}  // namespace nccltune::net
