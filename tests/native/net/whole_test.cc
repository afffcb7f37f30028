// SPDX-License-Identifier: Apache-2.0
// Tests the plugin as NCCL uses it: two processes load it, call every interface version in every
// order that NCCL may use, check every byte, and one loses its peer.
#include "common/json.h"
#include "program_output.h"
#include "testing.h"

namespace nccltune::host::net {
namespace {

struct CommandResult {
  int status = -1;     // exit status of the program; 128 + n for signal n
  std::string output;  // standard output and standard error
  json::Value report;  // the line of JSON; null if there is none
};

// Runs a shell command line.
CommandResult RunCommand(const std::string& command) {
  CommandResult outcome;
  const auto [output, status] = RunLine("(" + command + ") 2>&1");
  if (status == -1) return outcome;
  outcome.output = output;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const size_t line = outcome.output.find("{\"op\"");
  if (line != std::string::npos) {
    const std::string text = outcome.output.substr(line, outcome.output.find('\n', line) - line);
    json::Error error;
    if (!json::Parse(text, &outcome.report, &error)) outcome.report = json::Value();
  }
  return outcome;
}

// Returns a number in the report, for example "ranks" 1 "sent" "messages"; -1 if it is absent.
double NumberOf(const json::Value& rank, const char* first, const char* second) {
  const json::Value* const inner = rank.Find(first);
  const json::Value* const value = inner == nullptr ? nullptr : inner->Find(second);
  double number = -1;
  if (value != nullptr) value->ToNumber(&number);
  return number;
}

// Checks that the reports of both ranks show this many messages in each direction, with all their
// bytes.
void ExpectMessages(const CommandResult& outcome, double messages) {
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value* const ranks = outcome.report.Find("ranks");
  ASSERT_NE(ranks, nullptr) << outcome.output;
  ASSERT_EQ(ranks->AsArray()->size(), 2U);
  for (const json::Value& rank : *ranks->AsArray()) {
    EXPECT_EQ(NumberOf(rank, "sent", "messages"), messages);
    EXPECT_EQ(NumberOf(rank, "received", "messages"), messages);
  }
  const json::Value& first = (*ranks->AsArray())[0];
  const json::Value& second = (*ranks->AsArray())[1];
  EXPECT_EQ(NumberOf(first, "sent", "bytes"), NumberOf(second, "received", "bytes"));
  EXPECT_EQ(NumberOf(first, "received", "bytes"), NumberOf(second, "sent", "bytes"));
}

// The tests of the network plugin rely on this: each fault is detected and reported in one line.
using Case = std::pair<const char*, const char*>;  // fault and message

class FaultsTest : public ::testing::TestWithParam<Case> {};

TEST_P(FaultsTest, IsDetectedAndReported) {
  const std::string fault = GetParam().first;
  const bool hangs = fault.ends_with("hangs") || fault == "never_done";
  const CommandResult outcome =
      RunCommand("NCCL_SOCKET_IFNAME=lo SPOIL_PLUGIN=" NET_PLUGIN " SPOIL_FAULT=" + fault +
                 " " NET_HOST
                 " transfer --fork --sizes 4K --messages 40 --receive-slack 1"
                 " --direction forward --timeout " +
                 (hangs ? "3" : "100") + " --plugin " SPOILING_PLUGIN +
                 (fault == "writes_after_close" ? " --close-in-flight" : ""));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(Has(outcome.output, GetParam().second)) << outcome.output;
  EXPECT_EQ(outcome.output.rfind("error: rank ", 0), 0U) << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    Spoiled, FaultsTest,
    ::testing::Values(Case{"wrong_size",
                           "received message 0 of 4096 bytes: test reports 4095 bytes"},
                      Case{"corrupt_byte", "of 4096 bytes: the eight bytes from byte 16 are wrong"},
                      Case{"writes_behind", "of 4096 bytes: bytes behind the message were written"},
                      Case{"writes_before", "wrote outside of the buffer"},
                      Case{"never_done", "of 4096 bytes: is not done after 3 s"},
                      Case{"request_unset", "irecv did not set the request"},
                      Case{"done_unset", "test did not set done"},
                      Case{"test_fails", "test returned internal error"},
                      Case{"close_fails", "closeRecv returned internal error"},
                      Case{"writes_after_close", "was written to after its connection was closed"},
                      Case{"init_hangs", "rank 0: no progress for 6 s: init does not return"},
                      Case{"listen_hangs", "rank 1: no progress for 7 s: listen does not return"},
                      Case{"crash", "was ended by signal 6"}, Case{"exit", "ended with status 0"}),
    [](const auto& instance) { return std::string(instance.param.first); });

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
