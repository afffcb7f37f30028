// SPDX-License-Identifier: Apache-2.0
// Connections through a network that delays, closes, resets, truncates and stalls them. Either
// every byte arrives, or an error names the peer, the device and the outstanding bytes.
#include "net/relay.h"
#include "net/clock.h"
#include "net/link.h"
#include "net/receiver.h"
#include "net/sender.h"
#include "testing.h"

namespace nccltune::net {
namespace {

using Fault = Relay::Fault;

NetSettings FourFlows(int timeout_s = 600) {
  NetSettings settings;
  settings.flows = 4;
  settings.timeout_s = timeout_s;
  return settings;
}

class RelayTest : public testing::Test {
 protected:
  RelayTest() { TakeLines(); }

  // Connects with all flows through the relay, including reconnecting ones.
  void Connect(const NetSettings& settings) {
    link_ = std::make_unique<Link>(settings);
    relay_ = std::make_unique<Relay>(link_->end());
    link_->JoinThrough(relay_->end());
    ASSERT_TRUE(link_->stands());
  }

  // A mix of small messages and messages that all flows share.
  static Plan Mixed(size_t messages) {
    Plan plan = {.sizes = {}, .slack = 16};
    for (size_t i = 0; i < messages; ++i) {
      plan.sizes.push_back(i % 4 == 0 ? 300 + i : 2000 * (i % 200));
    }
    return plan;
  }

  TransferRequest* SendSome(size_t bytes) {
    content_ = Content(bytes, 3);
    TransferRequest* request = nullptr;
    EXPECT_EQ(Send(link_->sender, content_.data(), bytes, &request), abi::kSuccess);
    EXPECT_NE(request, nullptr);
    return request;
  }

  std::vector<std::byte> content_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Relay> relay_;
};

class RelayFaultTest : public RelayTest, public testing::WithParamInterface<Fault> {};

std::string NameOf(const testing::TestParamInfo<Fault>& info) {
  if (info.param == Fault::kEnd) return "End";
  return info.param == Fault::kReset ? "Reset" : "Truncate";
}

INSTANTIATE_TEST_SUITE_P(Faults, RelayFaultTest,
                         testing::Values(Fault::kEnd, Fault::kReset, Fault::kTruncate), NameOf);

TEST_F(RelayTest, ALongWay) {
  Connect(FourFlows());
  relay_->SetDelay(2 * kNsPerMs);
  EXPECT_TRUE(Exchange(*link_, Mixed(80)));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_P(RelayFaultTest, BefallsOneFlowAfterAnother) {
  Connect(FourFlows());
  link_->CloseListener();
  Plan plan = Mixed(120);
  size_t befallen = 0;
  plan.between = [&](size_t received) {
    if (received % 10 == 0 && relay_->Befall(received / 10 % 5, GetParam())) ++befallen;
  };
  EXPECT_TRUE(Exchange(*link_, plan));
  EXPECT_GE(befallen, 3U);
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_P(RelayFaultTest, BefallsAllFlowsAtOnceFarAway) {
  Connect(FourFlows());
  link_->CloseListener();
  relay_->SetDelay(kNsPerMs);
  Plan plan = Mixed(80);
  plan.between = [&](size_t received) {
    if (received % 40 == 20) relay_->BefallAll(GetParam());
  };
  EXPECT_TRUE(Exchange(*link_, plan));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

// Other flows resend the data of a stalled flow, and it gets no more.
TEST_F(RelayTest, ABulkFlowThatStalls) {
  Connect(FourFlows());
  link_->CloseListener();
  Plan plan = Mixed(120);
  plan.between = [&](size_t received) {
    // The express flow connects first, so it is the oldest.
    if (received == 50) relay_->Befall(1, Fault::kStall);
  };
  EXPECT_TRUE(Exchange(*link_, plan));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(RelayTest, WhatSeveralStalledFlowsHoldIsSentByOthers) {
  Connect(FourFlows());
  link_->CloseListener();
  Plan plan = Mixed(240);
  plan.between = [&](size_t received) {
    // The express flow connects first, so the second oldest is a bulk flow.
    if (received == 50 || received == 90 || received == 130) relay_->Befall(1, Fault::kStall);
  };
  EXPECT_TRUE(Exchange(*link_, plan));
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(RelayTest, SmallMessagesGoOnWithoutTheExpressFlow) {
  Connect(FourFlows());
  link_->CloseListener();
  Plan plan = {.sizes = std::vector<size_t>(400, 900)};
  plan.between = [&](size_t received) {
    // The flow that connected first.
    if (received == 50) relay_->Befall(0, Fault::kStall);
  };
  EXPECT_TRUE(Exchange(*link_, plan));
  EXPECT_TRUE(link_->sender->express_late());
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

TEST_F(RelayTest, WhenAllStallTheSenderReportsIt) {
  Connect(FourFlows(1));
  ASSERT_TRUE(Exchange(*link_, {.sizes = {1, 1 << 20}}));
  relay_->BefallAll(Fault::kStall);
  TransferRequest* const send = SendSome(32 << 20);
  EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  EXPECT_TRUE(
      HasLine(TakeLines(), {"WARN", "sending to " + relay_->end().Name(), "on lo",
                            "33554432 bytes outstanding", "nothing was delivered for 1 s"}));
}

// Small messages are copied, so their requests complete before they are delivered.
TEST_F(RelayTest, WhenAllStallTheSenderOfSmallMessagesReportsIt) {
  Connect(FourFlows(1));
  ASSERT_TRUE(Exchange(*link_, {.sizes = {1, 1 << 20}}));
  relay_->BefallAll(Fault::kStall);
  const std::vector<std::byte> content = Content(1 << 10, 3);
  EXPECT_TRUE(Until([&] {
    TransferRequest* request = nullptr;
    const abi::Result sent = Send(link_->sender, content.data(), content.size(), &request);
    return (sent == abi::kSuccess && request != nullptr ? Finish(request).result : sent) ==
           abi::kRemoteError;
  }));
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "sending to " + relay_->end().Name(), "on lo",
                                    " bytes outstanding", "nothing was delivered for 1 s"}));
}

TEST_F(RelayTest, WhenAllAreLostForGoodBothEndsReportIt) {
  Connect(FourFlows());
  link_->CloseListener();
  ASSERT_TRUE(Exchange(*link_, {.sizes = {1, 1 << 20}}));
  std::vector<std::byte> buffer(1000);
  TransferRequest* receive = nullptr;
  ASSERT_EQ(Receive(link_->receiver, buffer.data(), buffer.size(), &receive), abi::kSuccess);
  relay_->BefallAll(Fault::kStall);
  TransferRequest* const send = SendSome(8 << 20);
  relay_->StopListening();
  relay_->BefallAll(Fault::kReset);
  EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "sending to " + relay_->end().Name(), "on lo",
                                    "8388608 bytes outstanding"}));
  // A receiver waits ten seconds for flows to reconnect.
  EXPECT_TRUE(Until([&] {
    bool done = false;
    link_->receiver->Tick(NowNs() + 11 * kNsPerSecond);
    return nccltune::net::Test(receive, &done, nullptr) != abi::kSuccess || done;
  }));
  EXPECT_EQ(Finish(receive).result, abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "receiving from 127.0.0.1:", "on lo",
                                    "1000 bytes outstanding", "no flow for 10 s"}));
}

}  // namespace
}  // namespace nccltune::net
