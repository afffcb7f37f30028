// SPDX-License-Identifier: Apache-2.0
// Flows of a running transfer die by a close or a reset, one after another and all at once.
#include <sys/syscall.h>

#include "net/link.h"
#include "testing.h"

namespace nccltune::net {
namespace {

enum class Death { kEndBoth, kEndSending, kEndReading, kReset };

std::string NameOf(const testing::TestParamInfo<Death>& info) {
  switch (info.param) {
    case Death::kEndBoth:
      return "EndBoth";
    case Death::kEndSending:
      return "EndSending";
    case Death::kEndReading:
      return "EndReading";
    case Death::kReset:
      return "Reset";
  }
  return "";
}

void Kill(int fd, Death death) {
  // Connecting to AF_UNSPEC resets the connection; the owner keeps the descriptor. A raw system
  // call, because the thread sanitizer would report two threads that use one descriptor.
  sockaddr nothing = {};
  nothing.sa_family = AF_UNSPEC;
  switch (death) {
    case Death::kEndBoth:
      shutdown(fd, SHUT_RDWR);
      break;
    case Death::kEndSending:
      shutdown(fd, SHUT_WR);
      break;
    case Death::kEndReading:
      shutdown(fd, SHUT_RD);
      break;
    case Death::kReset:
      syscall(SYS_connect, fd, &nothing, sizeof(nothing));
      break;
  }
}

class FlowDeathTest : public testing::TestWithParam<Death> {
 protected:
  FlowDeathTest() { TakeLines(); }
};

INSTANTIATE_TEST_SUITE_P(Deaths, FlowDeathTest,
                         testing::Values(Death::kEndBoth, Death::kEndSending, Death::kEndReading,
                                         Death::kReset),
                         NameOf);

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

TEST_P(FlowDeathTest, OneAfterAnotherAndEveryByteArrives) {
  Link link(FourFlows());
  link.CloseListener();
  Plan plan = Mixed();
  size_t killed = 0;
  plan.between = [&](size_t received) {
    if (received % 20 != 0) return;
    const std::vector<int> flows = SocketsTo(link.end());
    if (flows.empty()) return;
    Kill(flows[killed % flows.size()], GetParam());
    ++killed;
  };
  EXPECT_TRUE(Exchange(link, plan));
  EXPECT_GE(killed, 5U);
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_P(FlowDeathTest, AllAtOnceAndTheyComeBack) {
  Link link(FourFlows());
  link.CloseListener();
  Plan plan = Mixed();
  size_t killed = 0;
  plan.between = [&](size_t received) {
    if (received % 100 != 50) return;
    for (const int fd : SocketsTo(link.end())) {
      Kill(fd, GetParam());
      ++killed;
    }
  };
  EXPECT_TRUE(Exchange(link, plan));
  EXPECT_GE(killed, 8U);
  EXPECT_TRUE(Until([&] { return SocketsTo(link.end()).size() == 5; }));
  EXPECT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}, .seed = 2}));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
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
  TransferRequest* send = nullptr;
  ASSERT_EQ(Send(link.sender, content.data(), content.size(), &send), abi::kSuccess);
  ASSERT_NE(send, nullptr);
  const std::vector<int> flows = SocketsTo(link.end());
  ASSERT_EQ(flows.size(), 5U);
  link.CloseReceiver();
  for (const int fd : flows) Kill(fd, GetParam());
  EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "sending to " + peer, "on lo", "outstanding"}));
}

}  // namespace
}  // namespace nccltune::net
