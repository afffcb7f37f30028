// SPDX-License-Identifier: Apache-2.0
// Tests the program with a plugin that keeps the contract: every mode and the unusual call orders.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "host/net/support.h"

namespace nccltune::host::net {
namespace {

class NetHostTest : public ::testing::Test {};

TEST_F(NetHostTest, TransfersEverySizeBothWays) {
  ExpectMessages(RunNaive("transfer --fork --connections 3 --window 32 --messages 100"), 300);
}

TEST_F(NetHostTest, TransfersEmptyAndLargeMessages) {
  const CommandResult outcome =
      RunNaive("transfer --fork --sizes 0,1,16M,0 --messages 4 --window 4");
  ExpectMessages(outcome, 4);
  EXPECT_EQ(NumberOf(outcome.report.Find("ranks")->AsArray()->front(), "sent", "bytes"),
            (16 << 20) + 1);
}

TEST_F(NetHostTest, FewerAreOutstandingWhereMemoryDoesNotAllowMore) {
  const CommandResult outcome =
      RunNaive("transfer --fork --sizes 1M --messages 4 --window 8 --memory 5M --receive-slack 0");
  ExpectMessages(outcome, 4);
  EXPECT_EQ(*outcome.report.Find("window")->AsInt(), 2);
}

TEST_F(NetHostTest, ForwardAlone) {
  const CommandResult outcome = RunNaive("transfer --fork --direction forward --messages 20");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value::Array& ranks = *outcome.report.Find("ranks")->AsArray();
  EXPECT_EQ(NumberOf(ranks[0], "sent", "messages"), 20);
  EXPECT_EQ(NumberOf(ranks[0], "received", "messages"), 0);
  EXPECT_EQ(NumberOf(ranks[1], "received", "messages"), 20);
}

TEST_F(NetHostTest, TheOddWaysToCall) {
  for (const char* const arguments :
       {"--order random --window 32", "--nulls", "--optional-completion --sizes 0-64K",
        "--one-service-thread", "--idle-listens 3", "--accept-delay 100", "--rounds 3",
        "--communicators 3 --connections 4", "--no-sizes", "--interface 6", "--interface 8"}) {
    const CommandResult outcome =
        RunNaive("transfer --fork --messages 20 " + std::string(arguments));
    EXPECT_EQ(outcome.status, 0) << arguments << ": " << outcome.output;
  }
}

TEST_F(NetHostTest, AcceptIsCalledBeforeAnyoneConnects) {
  ExpectMessages(RunNaive("transfer --fork --messages 20 --connect-delay 100"), 20);
}

TEST_F(NetHostTest, ManyConnections) {
  ExpectMessages(RunNaive("transfer --fork --connections 64 --messages 3 --sizes 0-64K"), 192);
}

TEST_F(NetHostTest, ClosesWithRequestsInFlight) {
  const CommandResult outcome =
      RunNaive("transfer --fork --close-in-flight --rounds 2 --sizes 0-256K");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value& rank = outcome.report.Find("ranks")->AsArray()->front();
  EXPECT_GT(*rank.Find("outstanding_at_close")->AsInt(), 0);
}

TEST_F(NetHostTest, ThroughputCountsWhatArrives) {
  const CommandResult outcome =
      RunNaive("throughput --fork --connections 2 --slice 64K --seconds 0.5 --warm-up 0.1 --check");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_GT(NumberOf(outcome.report, "gb_per_s", "forward"), 0);
  EXPECT_GT(NumberOf(outcome.report, "gb_per_s", "backward"), 0);
  EXPECT_NE(outcome.report.Find("cpu_s_per_gb")->AsDouble(), nullptr);
}

TEST_F(NetHostTest, IdleMovesNothing) {
  ExpectMessages(RunNaive("idle --fork --connections 2 --seconds 0.2"), 0);
}

TEST_F(NetHostTest, AKilledPeerIsReported) {
  const CommandResult outcome =
      RunNaive("throughput --fork --slice 64K --kill-after 100 --seconds 60");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value& lost = *outcome.report.Find("peer_lost");
  EXPECT_EQ(*lost.Find("call")->AsString(), "test");
  EXPECT_EQ(*lost.Find("result")->AsString(), "remote error");
}

TEST_F(NetHostTest, APeerThatIsStoppedForGoodIsMissed) {
  // The test plugin has no timeout of its own.
  const CommandResult outcome =
      RunNaive("throughput --fork --slice 64K --stop-after 100 --seconds 60 --timeout 3");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("rank 1 is lost, and the plugin reports no error"),
            std::string::npos)
      << outcome.output;
}

TEST_F(NetHostTest, APeerThatIsStoppedForAWhileIsWaitedFor) {
  const CommandResult outcome = RunNaive(
      "throughput --fork --slice 64K --stop-after 100 --continue-after 300 --warm-up 0 --seconds "
      "1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(outcome.report.Find("peer_lost")->IsNull());
}

TEST_F(NetHostTest, ADisturbanceAfterTheEndIsReported) {
  const CommandResult outcome =
      RunNaive("throughput --fork --kill-after 60000 --warm-up 0 --seconds 0.1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("before rank 1 was due to be killed"), std::string::npos)
      << outcome.output;
}

// Runs both ranks, which use that rendezvous. Returns the status of rank 0, or that of rank 1 if it
// differs.
CommandResult RunBoth(const std::string& arguments, const std::string& place) {
  const std::string command = NET_HOST " " + arguments +
                              " --plugin " NAIVE_NET_PLUGIN " --rendezvous " + place + " --rank ";
  return RunCommand(command + "1 & " + command + "0; status=$?; wait $! && exit $status");
}

TEST_F(NetHostTest, TwoProcessesConnectThroughAPort) {
  const std::string port = std::to_string(20000 + getpid() % 10000);
  ExpectMessages(RunBoth("transfer --messages 20 --timeout 20", port), 20);
}

TEST_F(NetHostTest, TwoProcessesConnectThroughAPath) {
  const std::string path = ::testing::TempDir() + "net_host_" + std::to_string(getpid());
  ExpectMessages(RunBoth("transfer --messages 20 --timeout 20", path), 20);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(NetHostTest, APeerThatWasMetCanBeKilled) {
  const std::string path = ::testing::TempDir() + "net_host_" + std::to_string(getpid());
  const CommandResult outcome =
      RunBoth("throughput --slice 64K --kill-after 100 --seconds 60", path);
  EXPECT_EQ(outcome.status, 128 + 9) << outcome.output;
  ASSERT_NE(outcome.report.Find("peer_lost"), nullptr) << outcome.output;
  EXPECT_EQ(*outcome.report.Find("peer_lost")->Find("result")->AsString(), "remote error");
}

TEST_F(NetHostTest, AMissingPeerIsReported) {
  const CommandResult outcome =
      RunNaive("idle --rendezvous /nonexistent/socket --rank 1 --timeout 1");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find("was not reached at /nonexistent/socket: cannot connect"),
            std::string::npos)
      << outcome.output;
}

TEST_F(NetHostTest, LogLinesArePrintedWhenAskedFor) {
  EXPECT_NE(RunNaive("idle --fork --seconds 0 --log").output.find("plugin INFO: naive init"),
            std::string::npos);
  EXPECT_EQ(RunNaive("idle --fork --seconds 0").output.find("naive init"), std::string::npos);
}

TEST_F(NetHostTest, WarningsAreReported) {
  const CommandResult outcome = RunNaive("idle --fork --seconds 0");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const json::Value& rank : *outcome.report.Find("ranks")->AsArray()) {
    const json::Value::Array& warnings = *rank.Find("warnings")->AsArray();
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_EQ(*warnings[0].AsString(), "naive is naive");
  }
}

constexpr int kInterfaces[] = {12, 11, 10, 9, 8, 7, 6};

TEST_F(NetHostTest, EveryInterfaceMovesMessages) {
  for (const int interface : kInterfaces) {
    const CommandResult outcome =
        RunNaive("transfer --fork --messages 20 --connections 2 --communicators 2 --interface " +
                 std::to_string(interface));
    ExpectMessages(outcome, 40);
    EXPECT_EQ(*outcome.report.Find("interface")->AsInt(), interface);
    for (const json::Value& rank : *outcome.report.Find("ranks")->AsArray()) {
      EXPECT_EQ(*rank.Find("profiler_calls")->AsInt(), interface >= 11 ? 2 : 0) << interface;
    }
  }
}

TEST_F(NetHostTest, TheNewestInterfaceIsTaken) {
  const CommandResult outcome = RunNaive("idle --fork --seconds 0");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(*outcome.report.Find("interface")->AsInt(), kInterfaces[0]);
}

TEST_F(NetHostTest, AMissingInterfaceIsReported) {
  const CommandResult outcome =
      RunCommand(NET_HOST " idle --fork --interface 6 --plugin " NO_PLUGIN);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find("exports no ncclNetPlugin_v6"), std::string::npos)
      << outcome.output;
}

TEST_F(NetHostTest, ListsSymbols) {
  const CommandResult outcome = RunCommand(NET_HOST " --list-symbols --plugin " NAIVE_NET_PLUGIN);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_GE(outcome.report.Find("exported")->AsArray()->size(), 2U);
}

TEST_F(NetHostTest, AFileThatIsNoPluginIsReported) {
  const CommandResult outcome = RunCommand(NET_HOST " idle --fork --plugin /nonexistent.so");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find("error: /nonexistent.so: cannot be opened"), std::string::npos);
}

TEST_F(NetHostTest, AMistakeIsUsage) {
  EXPECT_EQ(RunCommand(NET_HOST " idle").status, 2);
  EXPECT_EQ(RunCommand(NET_HOST " --help").status, 0);
}

}  // namespace
}  // namespace nccltune::host::net
