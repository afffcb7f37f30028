// SPDX-License-Identifier: Apache-2.0
#include "net/acceptor.h"

#include <sys/epoll.h>

#include "net/clock.h"
#include "net/descriptors.h"
#include "net/link.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr const char* kGet = "GET / HTTP/1.1\r\nHost: node17\r\nUser-Agent: curl/8.5.0\r\n\r\n";

std::vector<std::byte> RandomBytes(uint64_t seed) { return Content(kHelloBytes, seed); }

// An acceptor without a pool thread: the test calls it and sets the time.
class AcceptorTest : public testing::Test {
 protected:
  AcceptorTest() {
    TakeLines();
    std::string why;
    acceptor_ = Acceptor::Open(ContextWith({}), Loopback(), &why);
    EXPECT_NE(acceptor_, nullptr) << why;
  }

  SocketEndpoint end() const { return acceptor_->invitation().ends.front(); }

  Hello HelloOf(uint16_t flow, uint16_t flows = 2, uint64_t connection = 77) const {
    Hello hello;
    hello.token = acceptor_->invitation().token;
    hello.connection = connection;
    hello.flow = flow;
    hello.flows = flows;
    return hello;
  }

  // Returns whether the acceptor closes the connection without a timeout.
  bool IsTurnedAway(Stranger& stranger) {
    return Until([&] {
      EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
      return stranger.Closed();
    });
  }

  std::optional<PendingConnection> AwaitConnection() {
    std::optional<PendingConnection> pending;
    Until([&] { return (pending = acceptor_->TakeConnection(NowNs())).has_value(); });
    return pending;
  }

  std::shared_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, ASilentPeerIsDroppedAfterFiveSeconds) {
  Stranger silent(end());
  Stranger slow(end());
  const auto hello = Encode(HelloOf(0));
  slow.SendBytes(std::span(hello).first(32));
  const int64_t begun = NowNs();
  EXPECT_FALSE(acceptor_->TakeConnection(begun).has_value());
  EXPECT_FALSE(acceptor_->TakeConnection(begun + 4 * kNsPerSecond).has_value());
  EXPECT_FALSE(silent.Closed());
  EXPECT_FALSE(slow.Closed());
  EXPECT_TRUE(Until([&] {
    EXPECT_FALSE(acceptor_->TakeConnection(begun + 6 * kNsPerSecond).has_value());
    return silent.Closed() && slow.Closed();
  }));
  EXPECT_FALSE(slow.Welcomed().has_value());
}

TEST_F(AcceptorTest, APeerThatSendsSomethingElseIsDroppedAtOnce) {
  Hello wrong = HelloOf(0);
  wrong.token[15] ^= std::byte{1};
  Stranger http(end(), kGet + std::string(64, 'x'));
  Stranger random(end(), RandomBytes(1));
  Stranger tokenless(end(), Encode(wrong));
  for (Stranger* const each : {&http, &random, &tokenless}) {
    EXPECT_TRUE(IsTurnedAway(*each));
    EXPECT_FALSE(each->Welcomed().has_value()) << "a stranger gets no reply";
  }
}

TEST_F(AcceptorTest, AnotherReleaseGetsAReplyOnlyWithTheToken) {
  Hello other = HelloOf(0);
  other.release = kWireRelease + 3;
  Stranger peer(end(), Encode(other));
  EXPECT_TRUE(IsTurnedAway(peer));
  ASSERT_TRUE(peer.Welcomed().has_value());
  EXPECT_EQ(peer.Welcomed()->status, WelcomeStatus::kOtherRelease);
  EXPECT_EQ(peer.Welcomed()->release, kWireRelease);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "127.0.0.1", std::to_string(kWireRelease + 3)}));
  other.token = {};
  Stranger stranger(end(), Encode(other));
  EXPECT_TRUE(IsTurnedAway(stranger));
  EXPECT_FALSE(stranger.Welcomed().has_value());
  EXPECT_TRUE(TakeLines().empty()) << "nobody can fill the log";
}

TEST_F(AcceptorTest, AConnectionIsTakenWhenAllItsFlowsAreThere) {
  std::list<Stranger> flows;
  for (const uint16_t flow : std::initializer_list<uint16_t>{2, 0, 1}) {
    EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
    flows.emplace_back(end()).SendBytes(Encode(HelloOf(flow, 3)));
  }
  const std::optional<PendingConnection> pending = AwaitConnection();
  ASSERT_TRUE(pending.has_value());
  EXPECT_EQ(pending->connection, 77U);
  ASSERT_EQ(pending->sockets.size(), 3U);
  for (const Descriptor& socket : pending->sockets) EXPECT_TRUE(socket);
  for (Stranger& flow : flows) {
    EXPECT_TRUE(Until([&] { return flow.Welcomed().has_value(); }));
    EXPECT_EQ(flow.Welcomed()->status, WelcomeStatus::kTaken);
  }
}

TEST_F(AcceptorTest, AFlowThatComesAgainTakesItsOwnPlace) {
  Stranger first(end(), Encode(HelloOf(0)));
  EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
  Stranger again(end(), Encode(HelloOf(0)));
  EXPECT_TRUE(IsTurnedAway(first)) << "and it is no other flow";
  Stranger beyond(end(), Encode(HelloOf(5, 6)));
  EXPECT_TRUE(IsTurnedAway(beyond)) << "the connection has two";
  Stranger second(end(), Encode(HelloOf(1)));
  EXPECT_TRUE(AwaitConnection().has_value());
}

TEST_F(AcceptorTest, HalfAConnectionIsDroppedAfterAMinute) {
  Stranger half(end(), Encode(HelloOf(0)));
  EXPECT_TRUE(Until([&] {
    EXPECT_FALSE(acceptor_->TakeConnection(NowNs() + 0).has_value());
    EXPECT_FALSE(acceptor_->TakeConnection(NowNs() + 61 * kNsPerSecond).has_value());
    return half.Closed();
  }));
}

TEST_F(AcceptorTest, ConnectionsDoNotMix) {
  std::list<Stranger> flows;
  for (const uint64_t connection : {1U, 2U}) {
    flows.emplace_back(end()).SendBytes(Encode(HelloOf(0, 2, connection)));
  }
  flows.emplace_back(end()).SendBytes(Encode(HelloOf(1, 2, 2)));
  const std::optional<PendingConnection> pending = AwaitConnection();
  ASSERT_TRUE(pending.has_value());
  EXPECT_EQ(pending->connection, 2U);
  EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
}

TEST_F(AcceptorTest, AClosedListenerTakesNoNewConnection) {
  acceptor_->CloseToNew();
  Stranger late(end(), Encode(HelloOf(0)));
  EXPECT_TRUE(IsTurnedAway(late));
  ASSERT_TRUE(late.Welcomed().has_value());
  EXPECT_EQ(late.Welcomed()->status, WelcomeStatus::kUnknownConnection);
}

TEST_F(AcceptorTest, OfAFloodTheFirstGoAndAConnectionStillComesIn) {
  std::list<Stranger> flood;
  for (int i = 0; i < 600; ++i) {
    flood.emplace_back(end());
    if (i % 50 == 0) acceptor_->TakeConnection(NowNs());
  }
  EXPECT_TRUE(IsTurnedAway(flood.front())) << "there is room for 512";
  Stranger express(end(), Encode(HelloOf(0)));
  Stranger bulk(end(), Encode(HelloOf(1)));
  EXPECT_TRUE(AwaitConnection().has_value());
  EXPECT_FALSE(flood.back().Closed());
}

// More connections than are accepted in one turn.
TEST_F(AcceptorTest, NoPeerIsLostWhenManyArriveAtOnce) {
  constexpr uint16_t kPeers = 150;
  std::list<Stranger> peers;
  for (uint16_t i = 0; i < kPeers; ++i) {
    peers.emplace_back(end()).SendBytes(Encode(HelloOf(0, 2, 1000U + i)));
  }
  for (int turn = 0; turn < 5; ++turn) EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
  for (Stranger& peer : peers) EXPECT_FALSE(peer.Closed());
  for (uint16_t i = 0; i < kPeers; ++i) {
    peers.emplace_back(end()).SendBytes(Encode(HelloOf(1, 2, 1000U + i)));
  }
  for (uint16_t i = 0; i < kPeers; ++i) EXPECT_TRUE(AwaitConnection().has_value()) << i;
}

TEST_F(AcceptorTest, APeerThatHasSentHelloIsNotDroppedInAFlood) {
  std::list<Stranger> flood;
  Stranger express(end());
  EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
  express.SendBytes(Encode(HelloOf(0)));
  // No hello is read before the limit of handshakes is reached.
  for (int i = 0; i < 1100; ++i) flood.emplace_back(end());
  EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
  Stranger bulk(end(), Encode(HelloOf(1)));
  EXPECT_TRUE(AwaitConnection().has_value());
}

TEST_F(AcceptorTest, AConnectionWhosePeerHasGivenUpIsDropped) {
  {
    Stranger express(end());
    Stranger bulk(end());
    express.SendBytes(Encode(HelloOf(0, 3)));
    bulk.SendBytes(Encode(HelloOf(1, 3)));
    EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
  }
  // The last flow alone does not complete the connection.
  Stranger last(end(), Encode(HelloOf(2, 3)));
  const int64_t begun = NowNs();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(acceptor_->TakeConnection(begun + i * kNsPerSecond / 10).has_value());
  }
}

TEST_F(AcceptorTest, AWholeConnectionWhosePeerHasGivenUpIsNotTaken) {
  for (const uint16_t flow : {uint16_t{0}, uint16_t{1}}) {
    Stranger gone(end(), Encode(HelloOf(flow)));
  }
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(acceptor_->TakeConnection(NowNs()).has_value());
}

// While this object exists, the process can open no more file descriptors.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    const int lowest_free = dup(0);
    close(lowest_free);
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit full = {.rlim_cur = static_cast<rlim_t>(lowest_free),
                         .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  }
  ~NoMoreDescriptors() {
    setrlimit(RLIMIT_NOFILE, &before_);
    ForgetShortages();
  }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

TEST_F(AcceptorTest, AShortageRefusesEveryIncompleteConnectionAndKeepsTheCompleteOne) {
  const auto work = [&] {
    acceptor_->Ready(EPOLLIN);
    acceptor_->Work(NowNs());
  };
  // Connections 1 and 3 miss one flow of four, connection 2 is complete.
  std::list<Stranger> flows;
  for (const uint64_t connection : {1U, 2U, 3U}) {
    for (uint16_t flow = 0; flow < 3; ++flow) {
      const uint16_t all = connection == 2 ? 3 : 4;
      flows.emplace_back(end()).SendBytes(Encode(HelloOf(flow, all, connection)));
    }
  }
  for (int turn = 0; turn < 5; ++turn) work();
  // Returns the number of flows with which the peer of these flows may retry. Returns nothing if
  // the flows were not refused.
  const auto retry_flows = [&](ptrdiff_t first) {
    std::optional<uint16_t> retry;
    auto flow = std::next(flows.begin(), first);
    for (int i = 0; i < 3; ++i, ++flow) {
      if (!flow->Closed() || !flow->Welcomed().has_value()) return std::optional<uint16_t>();
      EXPECT_EQ(flow->Welcomed()->status, WelcomeStatus::kFewerFlows);
      retry = flow->Welcomed()->flows;
    }
    return retry;
  };
  {
    // The reserve of the process suffices for one of them.
    std::list<Stranger> silent;
    for (int i = 0; i < 3; ++i) silent.emplace_back(end());
    const NoMoreDescriptors full;
    work();
    EXPECT_EQ(retry_flows(0), 2) << "one descriptor is kept in reserve";
    EXPECT_EQ(retry_flows(6), 3);
    EXPECT_FALSE(acceptor_->TakeFailure().has_value());
  }
  const std::optional<PendingConnection> taken = AwaitConnection();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->connection, 2U);
  // The silent peers have gone.
  EXPECT_TRUE(Until([&] {
    work();
    return acceptor_->NextNs() == INT64_MAX;
  })) << "a refused connection is still in the list";
}

TEST_F(AcceptorTest, AShortageIsNoErrorWhereOnlyPeersThatHaveLeftHoldDescriptors) {
  const int64_t begun = NowNs();
  {
    Stranger gone(end(), Encode(HelloOf(0, 5)));
    // The flow is known, and its end is not looked for again for 10 ms.
    EXPECT_FALSE(acceptor_->TakeConnection(begun).has_value());
  }
  std::list<Stranger> next;
  for (int i = 0; i < 3; ++i) next.emplace_back(end());
  {
    const NoMoreDescriptors full;
    EXPECT_FALSE(acceptor_->TakeConnection(begun).has_value());
    EXPECT_FALSE(acceptor_->TakeFailure().has_value()) << "its descriptor is free again";
  }
}

// The receiver of an accepted connection is created after its welcomes. A flow that reconnects in
// between has no receiver yet: a welcome would make its peer send into a closed socket.
TEST_F(AcceptorTest, AFlowThatReconnectsBeforeItsReceiverExistsDialsAgain) {
  std::list<Stranger> flows;
  for (const uint16_t flow : {uint16_t{0}, uint16_t{1}}) {
    flows.emplace_back(end()).SendBytes(Encode(HelloOf(flow)));
  }
  ASSERT_TRUE(AwaitConnection().has_value());
  Stranger again(end(), Encode(HelloOf(1)));
  EXPECT_TRUE(IsTurnedAway(again));
  EXPECT_FALSE(again.Welcomed().has_value());
}

class AcceptorOfAConnectionTest : public testing::Test {
 protected:
  AcceptorOfAConnectionTest() { TakeLines(); }

  Plan Busy(std::function<void(size_t)> between) const {
    return {.sizes = std::vector<size_t>(200, 150'000), .window = 8, .between = std::move(between)};
  }

  Link link_;
};

TEST_F(AcceptorOfAConnectionTest, StrangersDoNotDisturbIt) {
  Hello wrong;
  wrong.token.fill(std::byte{1});
  wrong.flows = 3;
  const auto hello = Encode(wrong);
  std::list<Stranger> strangers;
  EXPECT_TRUE(Exchange(link_, Busy([&](size_t received) {
                         Stranger& stranger = strangers.emplace_back(link_.end());
                         switch (received % 5) {
                           case 0:
                             break;
                           case 1:
                             stranger.SendBytes(std::span(hello).first(32));
                             break;
                           case 2:
                             stranger.SendBytes(kGet);
                             break;
                           case 3:
                             stranger.SendBytes(RandomBytes(received));
                             break;
                           default:
                             stranger.SendBytes(hello);
                         }
                       })));
  ASSERT_EQ(strangers.size(), 200U);
  for (Stranger& stranger : strangers) {
    EXPECT_TRUE(Until([&] { return stranger.Closed(); }));
    EXPECT_FALSE(stranger.Welcomed().has_value());
  }
  EXPECT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(AcceptorOfAConnectionTest, AFloodDoesNotDisturbIt) {
  std::list<Stranger> flood;
  EXPECT_TRUE(Exchange(link_, Busy([&](size_t received) {
                         if (received != 20) return;
                         for (int i = 0; i < 300; ++i) flood.emplace_back(link_.end());
                       })));
  ASSERT_EQ(flood.size(), 300U);
  EXPECT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  for (Stranger& stranger : flood) EXPECT_TRUE(Until([&] { return stranger.Closed(); }));
}

TEST_F(AcceptorOfAConnectionTest, FlowsComeBackThroughAFlood) {
  link_.CloseListener();
  std::list<Stranger> flood;
  size_t flows = 0;
  EXPECT_TRUE(Exchange(link_, Busy([&](size_t received) {
                         if (received != 20) return;
                         const std::vector<int> sockets = SocketsTo(link_.end());
                         flows = sockets.size();
                         for (int i = 0; i < 300; ++i) flood.emplace_back(link_.end());
                         for (const int fd : sockets) shutdown(fd, SHUT_RDWR);
                       })));
  EXPECT_GE(flows, 2U);
  flood.clear();
  EXPECT_TRUE(Until([&] { return SocketsTo(link_.end()).size() == flows; }));
  EXPECT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

// epoll reports an edge once. A task that leaves connections unaccepted must ask to be called
// again.
TEST_F(AcceptorTest, AWorkerLooksAgainUntilNobodyIsLeft) {
  for (int i = 0; i < 100; ++i) Stranger(end()).Reset();
  for (int i = 0; i < 20; ++i) Stranger gone(end());
  Stranger last(end(), RandomBytes(2));
  acceptor_->Ready(EPOLLIN);
  // Like a pool thread: call Work again while it did work, and then at NextNs.
  EXPECT_TRUE(Until([&] {
    const int64_t now = NowNs();
    if (!acceptor_->Work(now) && acceptor_->NextNs() == INT64_MAX) return true;
    return last.Closed();
  }));
  EXPECT_TRUE(last.Closed()) << "the worker sleeps, and somebody waits";
}

}  // namespace
}  // namespace nccltune::net
