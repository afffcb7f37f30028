// SPDX-License-Identifier: Apache-2.0
// Tests the plugin as NCCL uses it: two processes load it, call every interface version in every
// order that NCCL may use, check every byte, and one loses its peer.
#include "host/net/support.h"
#include "testing.h"

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
  const CommandResult profiled = Run("transfer --messages 20 --sizes 0-1M --window 32");
  ExpectMessages(profiled, 20);
  for (const json::Value& rank : *profiled.report.Find("ranks")->AsArray()) {
    EXPECT_EQ(*rank.Find("profiler_calls")->AsInt(), GetParam() >= 10 ? 2 * (20 + 20) : 0);
  }
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

TEST(WholeNetNewestTest, SmallAndEmptyMessages) {
  ExpectMessages(RunOurs("transfer --messages 300 --sizes 0-2K --window 32 --receive-slack 0"),
                 300);
}

TEST(WholeNetNewestTest, LoadedAndUnloadedThreeTimes) {
  for (const char* const interface : {"8", "12"}) {
    const CommandResult outcome = RunOurs(
        std::string("transfer --messages 30 --rounds 3 --connections 4 --interface ") + interface);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
}

TEST(WholeNetNewestTest, AGibibyteArrives) {
  const CommandResult outcome =
      RunOurs("transfer --direction forward --sizes 1G --messages 1 --window 1 --timeout 60");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value& receiver = outcome.report.Find("ranks")->AsArray()->back();
  EXPECT_EQ(NumberOf(receiver, "received", "bytes"), double{1 << 30});
}

}  // namespace
}  // namespace nccltune::host::net
