// SPDX-License-Identifier: Apache-2.0
#include "net/door.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "net/clock.h"
#include "net/link.h"
#include "net/stranger.h"

namespace nccltune::net {
namespace {

constexpr const char* kGet = "GET / HTTP/1.1\r\nHost: node17\r\nUser-Agent: curl/8.5.0\r\n\r\n";

std::vector<std::byte> RandomBytes(uint64_t seed) { return Content(kHelloBytes, seed); }

// A door of which no worker knows: it is asked by hand, at any time.
class DoorTest : public testing::Test {
 protected:
  DoorTest() {
    TakeLines();
    std::string why;
    door_ = Door::Open(SurroundingsWith({}), Loopback(), &why);
    EXPECT_NE(door_, nullptr) << why;
  }

  Endpoint end() const { return door_->invitation().ends.front(); }

  Hello HelloOf(uint16_t flow, uint16_t flows = 2, uint64_t connection = 77) const {
    Hello hello;
    hello.token = door_->invitation().token;
    hello.connection = connection;
    hello.flow = flow;
    hello.flows = flows;
    return hello;
  }

  // Whether the door closes it, with no more time than it takes to look.
  bool IsTurnedAway(Stranger& stranger) {
    return Until([&] {
      EXPECT_FALSE(door_->TakeParty(NowNs()).has_value());
      return stranger.Closed();
    });
  }

  std::optional<Party> AwaitParty() {
    std::optional<Party> party;
    Until([&] { return (party = door_->TakeParty(NowNs())).has_value(); });
    return party;
  }

  std::shared_ptr<Door> door_;
};

TEST_F(DoorTest, WhoSaysNothingIsDroppedAfterFiveSeconds) {
  Stranger silent(end());
  Stranger slow(end());
  const auto hello = Encode(HelloOf(0));
  slow.Say(std::span(hello).first(32));
  const int64_t begun = NowNs();
  EXPECT_FALSE(door_->TakeParty(begun).has_value());
  EXPECT_FALSE(door_->TakeParty(begun + 4 * kNsPerSecond).has_value());
  EXPECT_FALSE(silent.Closed());
  EXPECT_FALSE(slow.Closed());
  EXPECT_TRUE(Until([&] {
    EXPECT_FALSE(door_->TakeParty(begun + 6 * kNsPerSecond).has_value());
    return silent.Closed() && slow.Closed();
  }));
  EXPECT_FALSE(slow.Welcomed().has_value());
}

TEST_F(DoorTest, WhoSaysSomethingElseIsDroppedAtOnce) {
  Hello wrong = HelloOf(0);
  wrong.token.bytes[15] ^= std::byte{1};
  Stranger http(end());
  http.Say(kGet + std::string(64, 'x'));
  Stranger random(end());
  random.Say(RandomBytes(1));
  Stranger tokenless(end());
  tokenless.Say(Encode(wrong));
  for (Stranger* const each : {&http, &random, &tokenless}) {
    EXPECT_TRUE(IsTurnedAway(*each));
    EXPECT_FALSE(each->Welcomed().has_value()) << "he is told nothing";
  }
}

TEST_F(DoorTest, AnotherReleaseIsToldSoOnlyWithTheToken) {
  Hello other = HelloOf(0);
  other.release = kWireRelease + 3;
  Stranger peer(end());
  peer.Say(Encode(other));
  EXPECT_TRUE(IsTurnedAway(peer));
  ASSERT_TRUE(peer.Welcomed().has_value());
  EXPECT_EQ(peer.Welcomed()->verdict, Verdict::kOtherRelease);
  EXPECT_EQ(peer.Welcomed()->release, kWireRelease);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "127.0.0.1", std::to_string(kWireRelease + 3)}));
  other.token = {};
  Stranger stranger(end());
  stranger.Say(Encode(other));
  EXPECT_TRUE(IsTurnedAway(stranger));
  EXPECT_FALSE(stranger.Welcomed().has_value());
  EXPECT_TRUE(TakeLines().empty()) << "nobody can fill the log";
}

TEST_F(DoorTest, AConnectionIsTakenWhenAllItsFlowsAreThere) {
  std::list<Stranger> flows;
  for (const uint16_t flow : std::initializer_list<uint16_t>{2, 0, 1}) {
    EXPECT_FALSE(door_->TakeParty(NowNs()).has_value());
    flows.emplace_back(end()).Say(Encode(HelloOf(flow, 3)));
  }
  const std::optional<Party> party = AwaitParty();
  ASSERT_TRUE(party.has_value());
  EXPECT_EQ(party->connection, 77U);
  ASSERT_EQ(party->sockets.size(), 3U);
  for (const Socket& socket : party->sockets) EXPECT_TRUE(socket.open());
  for (Stranger& flow : flows) {
    EXPECT_TRUE(Until([&] { return flow.Welcomed().has_value(); }));
    EXPECT_EQ(flow.Welcomed()->verdict, Verdict::kTaken);
  }
}

TEST_F(DoorTest, AFlowThatComesAgainTakesItsOwnPlace) {
  Stranger first(end());
  first.Say(Encode(HelloOf(0)));
  EXPECT_FALSE(door_->TakeParty(NowNs()).has_value());
  Stranger again(end());
  again.Say(Encode(HelloOf(0)));
  EXPECT_TRUE(IsTurnedAway(first)) << "and it is no other flow";
  Stranger beyond(end());
  beyond.Say(Encode(HelloOf(5, 6)));
  EXPECT_TRUE(IsTurnedAway(beyond)) << "the connection has two";
  Stranger second(end());
  second.Say(Encode(HelloOf(1)));
  EXPECT_TRUE(AwaitParty().has_value());
}

TEST_F(DoorTest, HalfAConnectionIsDroppedAfterAMinute) {
  Stranger half(end());
  half.Say(Encode(HelloOf(0)));
  EXPECT_TRUE(Until([&] {
    EXPECT_FALSE(door_->TakeParty(NowNs() + 0).has_value());
    EXPECT_FALSE(door_->TakeParty(NowNs() + 61 * kNsPerSecond).has_value());
    return half.Closed();
  }));
}

TEST_F(DoorTest, ConnectionsDoNotMix) {
  std::list<Stranger> flows;
  for (const uint64_t connection : {1U, 2U}) {
    flows.emplace_back(end()).Say(Encode(HelloOf(0, 2, connection)));
  }
  flows.emplace_back(end()).Say(Encode(HelloOf(1, 2, 2)));
  const std::optional<Party> party = AwaitParty();
  ASSERT_TRUE(party.has_value());
  EXPECT_EQ(party->connection, 2U);
  EXPECT_FALSE(door_->TakeParty(NowNs()).has_value());
}

TEST_F(DoorTest, AClosedListenerTakesNoNewConnection) {
  door_->CloseToNew();
  Stranger late(end());
  late.Say(Encode(HelloOf(0)));
  EXPECT_TRUE(IsTurnedAway(late));
  ASSERT_TRUE(late.Welcomed().has_value());
  EXPECT_EQ(late.Welcomed()->verdict, Verdict::kUnknownConnection);
}

TEST_F(DoorTest, OfAFloodTheFirstGoAndAConnectionStillComesIn) {
  std::list<Stranger> flood;
  for (int i = 0; i < 600; ++i) {
    flood.emplace_back(end());
    if (i % 50 == 0) door_->TakeParty(NowNs());
  }
  EXPECT_TRUE(IsTurnedAway(flood.front())) << "there is room for 512";
  Stranger express(end());
  express.Say(Encode(HelloOf(0)));
  Stranger bulk(end());
  bulk.Say(Encode(HelloOf(1)));
  EXPECT_TRUE(AwaitParty().has_value());
  EXPECT_FALSE(flood.back().Closed());
}

class DoorOfAConnectionTest : public testing::Test {
 protected:
  DoorOfAConnectionTest() { TakeLines(); }

  Plan Busy(std::function<void(size_t)> between) const {
    return {.sizes = std::vector<size_t>(200, 150'000), .window = 8, .between = std::move(between)};
  }

  Link link_;
};

TEST_F(DoorOfAConnectionTest, StrangersDoNotDisturbIt) {
  Hello wrong;
  wrong.token.bytes.fill(std::byte{1});
  wrong.flows = 3;
  const auto hello = Encode(wrong);
  std::list<Stranger> strangers;
  EXPECT_TRUE(Exchange(link_, Busy([&](size_t received) {
                         Stranger& stranger = strangers.emplace_back(link_.end());
                         switch (received % 5) {
                           case 0:
                             break;
                           case 1:
                             stranger.Say(std::span(hello).first(32));
                             break;
                           case 2:
                             stranger.Say(kGet);
                             break;
                           case 3:
                             stranger.Say(RandomBytes(received));
                             break;
                           default:
                             stranger.Say(hello);
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

TEST_F(DoorOfAConnectionTest, AFloodDoesNotDisturbIt) {
  std::list<Stranger> flood;
  EXPECT_TRUE(Exchange(link_, Busy([&](size_t received) {
                         if (received != 20) return;
                         for (int i = 0; i < 300; ++i) flood.emplace_back(link_.end());
                       })));
  ASSERT_EQ(flood.size(), 300U);
  EXPECT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  for (Stranger& stranger : flood) EXPECT_TRUE(Until([&] { return stranger.Closed(); }));
}

TEST_F(DoorOfAConnectionTest, FlowsComeBackThroughAFlood) {
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

// Of an edge epoll tells once: who leaves some at the socket must look again by himself.
TEST_F(DoorTest, AWorkerLooksAgainUntilNobodyIsLeft) {
  for (int i = 0; i < 100; ++i) Stranger(end()).Reset();
  for (int i = 0; i < 20; ++i) Stranger gone(end());
  Stranger last(end());
  last.Say(RandomBytes(2));
  door_->Ready(EPOLLIN);
  // As a worker does: again while there was work, then at the time that it is told.
  EXPECT_TRUE(Until([&] {
    const int64_t now = NowNs();
    if (!door_->Work(now) && door_->NextNs() == INT64_MAX) return true;
    return last.Closed();
  }));
  EXPECT_TRUE(last.Closed()) << "the worker sleeps, and somebody waits";
}

}  // namespace
}  // namespace nccltune::net
