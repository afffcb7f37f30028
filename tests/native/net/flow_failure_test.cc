// SPDX-License-Identifier: Apache-2.0
// A dead network compared with a busy application. Both leave data undelivered; only the first must
// end flows. A socket filter that drops every packet makes a flow's network dead: neither kernel
// receives anything.
#include "net/clock.h"

#include <linux/filter.h>
#include <netinet/tcp.h>

#include "net/link.h"
#include "net/receiver.h"
#include "net/sender.h"
#include "net/socket.h"
#include "net/transport.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr int kShortTimeoutMs = 1000;
constexpr size_t kBulkFlows = 3;
constexpr size_t kMuch = 4 << 20;

void DropAllPackets(int fd) {
  sock_filter drop = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {.len = 1, .filter = &drop};
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

class PathTest : public testing::Test {
 protected:
  PathTest() : link_(Settings()) { TakeLines(); }

  static NetSettings Settings() {
    NetSettings settings;
    settings.flows = kBulkFlows;
    settings.path_timeout_ms = kShortTimeoutMs;
    return settings;
  }

  // Sends more than the sockets can buffer, so that windows close.
  void SendMuch() {
    content_ = Content(kMuch, 1);
    for (size_t i = 0; i < kMostRequests; ++i) {
      TransferRequest* request = nullptr;
      ASSERT_EQ(Send(link_.sender, content_.data(), kMuch, &request), abi::kSuccess);
      ASSERT_NE(request, nullptr);
      sends_.push_back(request);
    }
  }

  void ReceiveAll() {
    for (size_t i = 0; i < kMostRequests; ++i) {
      std::vector<std::byte> buffer(kMuch);
      TransferRequest* request = nullptr;
      ASSERT_EQ(Receive(link_.receiver, buffer.data(), kMuch, &request), abi::kSuccess);
      ASSERT_NE(request, nullptr);
      ASSERT_EQ(Finish(request).result, abi::kSuccess);
      ASSERT_EQ(buffer, content_);
    }
    for (TransferRequest* const request : sends_) ASSERT_EQ(Finish(request).result, abi::kSuccess);
  }

  // Kills the path of a flow, numbered in connecting order; the express flow is 0.
  void KillPath(size_t flow) {
    const std::vector<int> near = SocketsTo(link_.end());
    ASSERT_EQ(near.size(), kBulkFlows + 1);
    const std::vector<int> far = SocketsTo(LocalEnd(near[flow]));
    ASSERT_EQ(far.size(), 1U);
    DropAllPackets(near[flow]);
    DropAllPackets(far[0]);
  }

  const Counters& sent() { return link_.sender->counters(); }
  const Counters& received() { return link_.receiver->counters(); }

  Link link_;
  std::vector<std::byte> content_;
  std::vector<TransferRequest*> sends_;
};

TEST_F(PathTest, AnApplicationThatIsBusyForLongEndsNoFlow) {
  SendMuch();
  std::this_thread::sleep_for(std::chrono::milliseconds(5 * kShortTimeoutMs));
  ReceiveAll();
  EXPECT_EQ(sent().flow_ends, 0U);
  EXPECT_EQ(received().flow_ends, 0U);
  EXPECT_EQ(sent().sent_again, 0U);
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(PathTest, AFlowWithADeadPathIsNoticedByBothEndsAndComesBack) {
  ASSERT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  KillPath(2);
  size_t rounds = 0;
  // Other flows carry its share in the meantime.
  EXPECT_TRUE(Until([&] {
    if (!Exchange(link_, {.sizes = std::vector<size_t>(8, 1 << 20), .seed = ++rounds})) return true;
    return sent().flow_returns != 0;
  }));
  EXPECT_GE(sent().flow_ends, 1U);
  EXPECT_GE(sent().flow_returns, 1U);
  EXPECT_TRUE(Until([&] { return received().flow_returns != 0; }));
  EXPECT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(PathTest, ADeadNetworkIsNoticedWhileTheApplicationIsBusy) {
  SendMuch();
  for (size_t flow = 0; flow <= kBulkFlows; ++flow) KillPath(flow);
  // The bulk flows have data in flight; they reconnect on new sockets.
  EXPECT_TRUE(Until([&] { return sent().flow_returns >= kBulkFlows; }));
  EXPECT_GE(sent().flow_ends, kBulkFlows);
  ReceiveAll();
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(PathTest, ADeadNetworkIsNoticedAtRest) {
  ASSERT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  for (size_t flow = 0; flow <= kBulkFlows; ++flow) KillPath(flow);
  EXPECT_TRUE(Until([&] { return sent().flow_returns > kBulkFlows; }));
  EXPECT_TRUE(Exchange(link_, {.sizes = {1, 1 << 20}}));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST(UserTimeout, IsNotSet) {
  // TCP_USER_TIMEOUT must not be set: it ends connections with a closed window even if the peer
  // answers.
  const Link link;
  for (const int fd : SocketsTo(link.end())) {
    int value = -1;
    socklen_t length = sizeof(value);
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length), 0);
    EXPECT_EQ(value, 0);
  }
}

constexpr int kLimitMs = 8'000;
constexpr int64_t kLimitNs = kLimitMs * kNsPerMs;

PathFacts Facts(uint32_t unacknowledged, uint32_t probes, int64_t last_answer_ago_ns) {
  PathFacts facts;
  facts.unacknowledged = unacknowledged;
  facts.probes = probes;
  facts.last_answer_ago_ns = last_answer_ago_ns;
  return facts;
}

TEST(PathWatch, IsDueOnlyAfterSomethingWasWritten) {
  PathWatch watch(kLimitMs);
  EXPECT_FALSE(watch.Due(kNsPerSecond));
  EXPECT_EQ(watch.NextNs(), INT64_MAX);
  watch.Wrote();
  EXPECT_TRUE(watch.Due(kNsPerSecond));
  EXPECT_FALSE(watch.IsDead(kNsPerSecond, Facts(1, 0, 0)));
  EXPECT_FALSE(watch.Due(kNsPerSecond));
  EXPECT_EQ(watch.NextNs(), kNsPerSecond + kLimitNs / 8);
  EXPECT_TRUE(watch.Due(kNsPerSecond + kLimitNs / 8));
}

TEST(PathWatch, RestsWhenAllIsAnswered) {
  PathWatch watch(kLimitMs);
  watch.Wrote();
  EXPECT_FALSE(watch.IsDead(kNsPerSecond, Facts(0, 0, 0)));
  EXPECT_EQ(watch.NextNs(), INT64_MAX);
  // Data behind a closed window needs a check: the next probe may not be answered.
  watch.Wrote();
  PathFacts facts = Facts(0, 0, 0);
  facts.unsent = 1;
  EXPECT_FALSE(watch.IsDead(kNsPerSecond, facts));
  EXPECT_NE(watch.NextNs(), INT64_MAX);
}

TEST(PathWatch, IsDeadAfterTheLimitWithoutAnyAnswer) {
  for (const bool probes : {false, true}) {
    PathWatch watch(kLimitMs);
    watch.Wrote();
    const auto at = [&](int64_t ns) {
      // The last acknowledgement was at time 0.
      return watch.IsDead(ns, Facts(probes ? 0 : 3, probes ? 1 : 0, ns));
    };
    // The data at the first check may have been sent just before it.
    EXPECT_FALSE(at(kLimitNs * 2));
    EXPECT_FALSE(at(kLimitNs * 3 - 1));
    EXPECT_TRUE(at(kLimitNs * 3));
  }
}

TEST(PathWatch, AnyAnswerStartsTheTimeAnew) {
  PathWatch watch(kLimitMs);
  watch.Wrote();
  int64_t now = 0;
  // The window stays closed for a long time, and each probe is answered after a while.
  for (int i = 0; i < 100; ++i) {
    now += kLimitNs / 2;
    EXPECT_FALSE(watch.IsDead(now, Facts(0, 1, kLimitNs / 4)));
  }
  EXPECT_FALSE(watch.IsDead(now + kLimitNs / 2, Facts(0, 1, kLimitNs * 3 / 4)));
  EXPECT_TRUE(watch.IsDead(now + kLimitNs, Facts(0, 1, kLimitNs * 5 / 4)));
}

TEST(PathWatch, AnotherSocketStartsTheTimeAnew) {
  PathWatch watch(kLimitMs);
  watch.Wrote();
  EXPECT_FALSE(watch.IsDead(0, Facts(1, 0, 0)));
  watch.Reset();
  EXPECT_EQ(watch.NextNs(), INT64_MAX);
  watch.Wrote();
  EXPECT_FALSE(watch.IsDead(kLimitNs, Facts(1, 0, kLimitNs)));
}

// Flows of a running transfer die by a close or a reset, one after another and all at once.

struct Death {
  const char* name;
  int how;  // of shutdown; -1: a reset
};

void Kill(int fd, const Death& death) {
  if (death.how < 0) {
    ResetSocket(fd);
  } else {
    shutdown(fd, death.how);
  }
}

class FlowDeathTest : public testing::TestWithParam<Death> {
 protected:
  FlowDeathTest() { TakeLines(); }
};

INSTANTIATE_TEST_SUITE_P(Deaths, FlowDeathTest,
                         testing::Values(Death{"EndBoth", SHUT_RDWR}, Death{"EndSending", SHUT_WR},
                                         Death{"EndReading", SHUT_RD}, Death{"Reset", -1}),
                         [](const auto& each) { return each.param.name; });

NetSettings FourFlows() {
  NetSettings settings;
  settings.flows = 4;
  return settings;
}

Plan Mixed() {
  Plan plan = {.sizes = {}, .slack = 16};
  for (size_t i = 0; i < 300; ++i) plan.sizes.push_back(i % 4 == 0 ? 300 + i : 1000 * i);
  return plan;
}

TEST_P(FlowDeathTest, OneAfterAnotherOrAllAtOnceAndTheyComeBack) {
  for (const bool all : {false, true}) {
    Link link(FourFlows());
    link.CloseListener();
    Plan plan = Mixed();
    size_t killed = 0;
    plan.between = [&](size_t received) {
      if (received % (all ? 100 : 20) != (all ? 50 : 0)) return;
      const std::vector<int> flows = SocketsTo(link.end());
      if (flows.empty()) return;
      for (const int fd : all ? flows : std::vector{flows[killed % flows.size()]}) {
        Kill(fd, GetParam());
        ++killed;
      }
    };
    EXPECT_TRUE(Exchange(link, plan));
    EXPECT_GE(killed, all ? 8U : 5U);
    EXPECT_TRUE(Until([&] { return SocketsTo(link.end()).size() == 5; }));
    EXPECT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}, .seed = 2}));
    EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
  }
}

TEST_P(FlowDeathTest, AConnectionWithOneFlowLivesOn) {
  NetSettings settings;
  settings.flows = 1;
  settings.threads = 2;
  Link link(settings);
  Plan plan = Mixed();
  plan.between = [&](size_t received) {
    if (received % 50 != 0) return;
    for (const int fd : SocketsTo(link.end())) Kill(fd, GetParam());
  };
  EXPECT_TRUE(Exchange(link, plan));
}

TEST_P(FlowDeathTest, WithoutAListenerToComeBackToThePeerIsLost) {
  Link link(FourFlows());
  link.CloseListener();
  ASSERT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}}));
  const std::string peer = link.end().Name();
  const std::vector<std::byte> content = Content(8 << 20, 3);
  TransferRequest* send = link.Send(content);
  const std::vector<int> flows = SocketsTo(link.end());
  ASSERT_EQ(flows.size(), 5U);
  link.CloseReceiver();
  for (const int fd : flows) Kill(fd, GetParam());
  EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "sending to " + peer, "on lo", "outstanding"}));
}

}  // namespace
}  // namespace nccltune::net
