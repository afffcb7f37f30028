// SPDX-License-Identifier: Apache-2.0
//
// Tests the plugin as NCCL uses it: two processes load it, call every interface version in every
// order that NCCL may use, check every byte, and one loses its peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "host/net/support.h"

namespace nccltune::host::net {
namespace {

CommandResult RunOurs(const std::string& arguments) {
  return RunCommand("NCCL_SOCKET_IFNAME=lo " NET_HOST " " + arguments +
                    " --fork --plugin " NET_PLUGIN);
}

// Rank 0 got an error that names the peer, and no resource of the plugin is left.
void ExpectLoss(const CommandResult& outcome) {
  const json::Value* const lost = outcome.report.Find("peer_lost");
  ASSERT_NE(lost, nullptr) << outcome.output;
  ASSERT_NE(lost->Find("result"), nullptr) << outcome.output;
  EXPECT_EQ(*lost->Find("result")->AsString(), "remote error");
  const json::Value& rank = outcome.report.Find("ranks")->AsArray()->front();
  EXPECT_EQ(NumberOf(rank, "left_behind", "threads"), 0);
  EXPECT_EQ(NumberOf(rank, "left_behind", "descriptors"), 0);
  const json::Value::Array& warnings = *rank.Find("warnings")->AsArray();
  const bool reported = std::ranges::any_of(warnings, [](const json::Value& warning) {
    const std::string& text = *warning.AsString();
    return text.find("127.0.0.1:") != std::string::npos &&
           text.find(" on lo ") != std::string::npos &&
           text.find(" bytes outstanding: ") != std::string::npos;
  });
  EXPECT_TRUE(reported) << outcome.output;
}

class WholeNetTest : public testing::TestWithParam<int> {
 protected:
  CommandResult Run(const std::string& arguments) const {
    return RunOurs(arguments + " --interface " + std::to_string(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(Interfaces, WholeNetTest, testing::Range(6, 13),
                         [](const auto& each) { return "V" + std::to_string(each.param); });

TEST_P(WholeNetTest, Transfers) {
  ExpectMessages(Run("transfer --messages 60 --connections 2 --sizes 0-1M"), 120);
}

TEST_P(WholeNetTest, EveryRequestBeginsAndEndsForProfilers) {
  const CommandResult profiled = Run("transfer --messages 20 --sizes 0-1M");
  const CommandResult without_parents = Run("transfer --messages 20 --sizes 0-1M --nulls");
  ExpectMessages(profiled, 20);
  ExpectMessages(without_parents, 20);
  const int64_t calls = GetParam() >= 10 ? 2 * (20 + 20) : 0;
  for (const json::Value& rank : *profiled.report.Find("ranks")->AsArray()) {
    EXPECT_EQ(*rank.Find("profiler_calls")->AsInt(), calls);
  }
  for (const json::Value& rank : *without_parents.report.Find("ranks")->AsArray()) {
    EXPECT_EQ(*rank.Find("profiler_calls")->AsInt(), 0);
  }
}

TEST_P(WholeNetTest, TransfersWithRandomTestsAndNoOptionalPointers) {
  ExpectMessages(Run("transfer --messages 60 --order random --window 32 --nulls"), 60);
}

TEST_P(WholeNetTest, ThePeerThatIsKilledIsAnError) {
  const CommandResult outcome = Run("transfer --messages 100000000 --sizes 64K --kill-after 300");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  ExpectLoss(outcome);
}

TEST_P(WholeNetTest, ClosesWithRequestsInFlight) {
  const CommandResult outcome = Run("transfer --messages 40 --close-in-flight");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

class WholeNetNewestTest : public testing::Test {};

TEST_F(WholeNetNewestTest, SmallAndEmptyMessages) {
  ExpectMessages(RunOurs("transfer --messages 300 --sizes 0-2K --window 32 --receive-slack 0"),
                 300);
}

TEST_F(WholeNetNewestTest, ReceivesWhoseSizeNobodyNeeds) {
  for (const int interface : {9, 10, 11, 12}) {
    ExpectMessages(RunOurs("transfer --messages 60 --optional-completion --interface " +
                           std::to_string(interface)),
                   60);
  }
}

TEST_F(WholeNetNewestTest, LoadedAndUnloadedThreeTimes) {
  EXPECT_EQ(RunOurs("transfer --messages 30 --rounds 3 --interface 8").status, 0);
  const CommandResult outcome = RunOurs("transfer --messages 30 --rounds 3 --communicators 2");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST_F(WholeNetNewestTest, ConnectAndAcceptWaitForEachOther) {
  ExpectMessages(RunOurs("transfer --messages 20 --connect-delay 200 --one-service-thread"), 20);
  ExpectMessages(RunOurs("transfer --messages 20 --accept-delay 200 --one-service-thread"), 20);
  ExpectMessages(RunOurs("transfer --messages 20 --idle-listens 5 --connections 4"), 80);
}

TEST_F(WholeNetNewestTest, OfOneFlow) {
  const CommandResult outcome =
      RunCommand("NCCLTUNE_NET_FLOWS=1 NCCLTUNE_NET_THREADS=1 NCCL_SOCKET_IFNAME=lo " NET_HOST
                 " transfer --messages 60 --window 32 --fork --plugin " NET_PLUGIN);
  ExpectMessages(outcome, 60);
}

// Also with small messages only, which complete immediately.
TEST_F(WholeNetNewestTest, APeerThatIsStoppedForGoodIsAnError) {
  for (const char* const sizes : {"1M", "1K"}) {
    const CommandResult outcome = RunCommand(
        std::string("NCCLTUNE_NET_TIMEOUT=1 NCCL_SOCKET_IFNAME=lo " NET_HOST
                    " transfer --messages 100000000 --direction forward --stop-after 300 --fork"
                    " --plugin " NET_PLUGIN " --sizes ") +
        sizes);
    ASSERT_EQ(outcome.status, 0) << outcome.output;
    ExpectLoss(outcome);
  }
}

TEST_F(WholeNetNewestTest, AGibibyteArrives) {
  const CommandResult outcome =
      RunOurs("transfer --direction forward --sizes 1G --messages 1 --window 1 --timeout 60");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value& receiver = outcome.report.Find("ranks")->AsArray()->back();
  EXPECT_EQ(NumberOf(receiver, "received", "bytes"), double{1 << 30});
}

TEST_F(WholeNetNewestTest, APeerThatIsStoppedForAWhileIsNoError) {
  const CommandResult outcome =
      RunOurs("transfer --messages 3000 --sizes 1M --stop-after 200 --continue-after 500");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(outcome.report.Find("peer_lost")->IsNull());
  for (const json::Value& rank : *outcome.report.Find("ranks")->AsArray()) {
    EXPECT_EQ(NumberOf(rank, "left_behind", "threads"), 0);
    EXPECT_EQ(NumberOf(rank, "left_behind", "descriptors"), 0);
  }
}

}  // namespace
}  // namespace nccltune::host::net
