// SPDX-License-Identifier: Apache-2.0
#include "host/protocol.h"
#include "host/guarded.h"
#include "host/line_channel.h"
#include "host/program_options.h"
#include "testing.h"

namespace nccltune::host {
namespace {

const NcclRules& RulesOf(int minor) {
  bool exact = false;
  return *RulesFor({2, minor, 0}, &exact);
}

std::string Problem(std::string_view line, int minor = 28) {
  Command command;
  std::string error;
  return ParseCommand(line, RulesOf(minor), &command, &error) ? "no error" : error;
}

TEST(Protocol, ReadsADecideRequest) {
  Command command;
  std::string error;
  ASSERT_TRUE(ParseCommand(
      R"({"op":"decide","collective":"reducescatter","bytes":9223372036854775807,"pipe_ops":4,)"
      R"("registered":true,"chunk_bytes":65536,"costs":{"tree/ll":12.5,"ring/simple":7,)"
      R"("ring/ll":null,"nvls/simple":-1},"log":true})",
      RulesOf(28), &command, &error))
      << error;
  EXPECT_EQ(command.kind, Command::Kind::kDecide);
  EXPECT_TRUE(command.want_log);
  EXPECT_EQ(command.request.collective, abi::kReduceScatter);
  EXPECT_EQ(command.request.bytes, 9223372036854775807u);
  EXPECT_EQ(command.request.pipe_ops, 4);
  EXPECT_TRUE(command.request.registered);
  EXPECT_EQ(command.request.chunk_bytes, 65536u);
  ASSERT_TRUE(command.request.costs.has_value());
  ASSERT_EQ(command.request.costs->size(), 4u);
  EXPECT_EQ((*command.request.costs)[0].first, (Combination{abi::kTree, abi::kLl}));
  EXPECT_EQ((*command.request.costs)[0].second, 12.5f);
  EXPECT_EQ((*command.request.costs)[2].second, abi::kIgnore);
  EXPECT_EQ((*command.request.costs)[3].second, abi::kIgnore);
}

TEST(Protocol, NeedsLittle) {
  Command command;
  std::string error;
  ASSERT_TRUE(ParseCommand(R"({"op":"decide","collective":"allreduce","bytes":0})", RulesOf(28),
                           &command, &error));
  EXPECT_EQ(command.request.pipe_ops, 1);
  EXPECT_FALSE(command.request.registered);
  EXPECT_FALSE(command.request.costs.has_value());
  EXPECT_FALSE(command.want_log);
  ASSERT_TRUE(ParseCommand(R"({"op":"quit"})", RulesOf(28), &command, &error));
  EXPECT_EQ(command.kind, Command::Kind::kQuit);
}

TEST(Protocol, ReportsInvalidRequests) {
  EXPECT_EQ(Problem("{"), "no JSON: expected a string as the name of a member at byte 1");
  EXPECT_EQ(Problem("7"), "'op' must be \"decide\" or \"quit\"");
  EXPECT_EQ(Problem(R"({"op":7})"), "'op' must be \"decide\" or \"quit\"");
  EXPECT_EQ(Problem(R"({"op":"quit","now":1})"), "'now' is not known here; valid: op");
  EXPECT_EQ(Problem(R"({"op":"decide","bytes":1})"), "'collective' is missing");
  EXPECT_EQ(Problem(R"({"op":"decide","collective":"alltoall","bytes":1})"),
            "'alltoall' is no collective that a tuner is asked about");
  EXPECT_EQ(Problem(R"({"op":"decide","collective":"reduce","bytes":-1})"),
            "'bytes' must be from 0 to 9223372036854775807");
  EXPECT_EQ(Problem(R"({"op":"decide","collective":"reduce","bytes":1.0})"),
            "'bytes' must be an integer, not a number");
  EXPECT_EQ(Problem(R"({"op":"decide","collective":"reduce","bytes":1,"pipe_ops":0})"),
            "'pipe_ops' must be from 1 to 1048576");
}

std::string CostProblem(const std::string& costs, int minor = 28) {
  return Problem(R"({"op":"decide","collective":"reduce","bytes":1,"costs":)" + costs + "}", minor);
}

TEST(Protocol, ReportsInvalidCosts) {
  EXPECT_EQ(CostProblem("[]"), "'costs' must be an object, not an array");
  EXPECT_EQ(CostProblem(R"({"Tree/LL":1})"),
            "'costs': 'Tree/LL' is no algorithm/protocol such as tree/ll128");
  EXPECT_EQ(CostProblem(R"({"tree/ll":"1"})"), "'costs': 'tree/ll' must be a number, not a string");
  EXPECT_EQ(CostProblem(R"({"tree/ll":1e39})"), "'costs': 'tree/ll' is too large");
  EXPECT_EQ(CostProblem(R"({"pat/simple":1})", 22), "'costs': NCCL 2.22 has no pat/simple");
  EXPECT_EQ(CostProblem(R"({"pat/simple":1})", 23), "no error");
}

TEST(Protocol, WritesADecision) {
  Decision decision;
  decision.request.bytes = 4096;
  decision.request.costs.emplace();
  decision.outcome = DecisionResult::kChosen;
  decision.choice = {{abi::kTree, abi::kLl128}, 8, 65536};
  decision.selected = decision.choice.combination;
  decision.channels_requested = 8;
  decision.table_changed = {
      {{abi::kTree, abi::kLl128}, 12.3f, 0.0f},
      {{abi::kRing, abi::kLl}, 1e-9f, std::numeric_limits<float>::quiet_NaN()}};
  decision.Warn("some_code", "some text");
  decision.log.lines = {{abi::kLogInfo, "quiet"}, {abi::kLogWarn, "loud"}};
  EXPECT_EQ(
      json::Write(DecideAnswer(decision, false)),
      R"({"op":"decide","ok":true,"collective":"allreduce","bytes":4096,"pipe_ops":1,)"
      R"("registered":false,"costs":"given","decided":{"algorithm":"tree","protocol":"ll128",)"
      R"("channels":8,"chunk_bytes":65536},"selected":{"algorithm":"tree","protocol":"ll128"},)"
      R"("channels_requested":8,"table_changed":[{"algorithm":"tree","protocol":"ll128",)"
      R"("before":12.3,"after":0.0},{"algorithm":"ring","protocol":"ll","before":1e-09,)"
      R"("after":null}],"warnings":[{"code":"some_code","text":"some text"}],)"
      R"("log":[{"level":"WARN","text":"loud"}],"log_dropped":0,"error":null})");
  EXPECT_EQ(DecideAnswer(decision, true).Find("log")->AsArray()->size(), 2u);
}

TEST(Protocol, WritesTheDefaultAndAFailure) {
  Decision decision;
  EXPECT_EQ(json::Write(*DecideAnswer(decision, false).Find("decided")), "\"default\"");
  EXPECT_EQ(json::Write(*DecideAnswer(decision, false).Find("costs")), "\"nominal\"");
  EXPECT_TRUE(DecideAnswer(decision, false).Find("selected")->IsNull());
  decision.Fail("plugin_error", "broken");
  const json::Value answer = DecideAnswer(decision, false);
  EXPECT_TRUE(answer.Find("decided")->IsNull());
  EXPECT_EQ(json::Write(*answer.Find("ok")), "false");
  EXPECT_EQ(json::Write(*answer.Find("error")), R"({"kind":"plugin_error","text":"broken"})");
  EXPECT_EQ(json::Write(RequestErrorAnswer("what")),
            R"({"op":null,"ok":false,"error":{"kind":"request","text":"what"}})");
  EXPECT_EQ(json::Write(QuitAnswer("")), R"({"op":"quit","ok":true,"error":null})");
}

TEST(Protocol, WritesTheResultOfTheStart) {
  HostOptions options;
  options.tuner = "t.so";
  options.nccl = {2, 31, 2};
  options.platform = {.nodes = 2, .ranks = 16};
  InitReport report;
  report.exported = {6, 5};
  report.interface = 6;
  report.plugin_name = "p";
  report.has_chunk_size = true;
  report.channel_rule = ChannelRule::kCaps;
  report.constants_changed = {{"llMaxBws[0][0]", 0, 1.5}};
  report.log.lines = {{abi::kLogInfo, "hello"}};
  report.log.dropped = 3;
  EXPECT_EQ(json::Write(InitAnswer(options, report, std::nullopt)),
            R"({"op":"init","ok":true,"schema_version":1,"tuner":"t.so","nccl":"2.31.2",)"
            R"("nccl_known":true,"nodes":2,"ranks":16,"exported":[6,5],"interface":6,"plugin":"p",)"
            R"("has_chunk_size":true,"channel_rule":"caps","constants_changed":[{"name":)"
            R"("llMaxBws[0][0]","before":0.0,"after":1.5}],"warnings":[],"log":[{"level":"INFO",)"
            R"("text":"hello"}],"log_dropped":3,"error":null})");
  const json::Value failed = InitAnswer(options, InitReport(), Failure{"load", "no file"});
  EXPECT_EQ(json::Write(*failed.Find("error")), R"({"kind":"load","text":"no file"})");
  EXPECT_TRUE(failed.Find("interface")->IsNull());
  EXPECT_TRUE(failed.Find("plugin")->IsNull());
}

using Arguments = std::vector<std::string_view>;

ProgramOptions Good(const Arguments& arguments) {
  ProgramOptions options;
  std::string error;
  EXPECT_TRUE(ParseProgramOptions(arguments, &options, &error)) << error;
  return options;
}

std::string OptionProblem(const Arguments& arguments) {
  ProgramOptions options;
  std::string error;
  return ParseProgramOptions(arguments, &options, &error) ? "no error" : error;
}

// Returns the mandatory arguments plus `more`.
Arguments With(const Arguments& more) {
  Arguments all = {"--tuner", "t.so", "--nccl", "2.28.9", "--nodes", "2", "--ranks", "16"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(ProgramOptions, HaveDefaultsFromTheScale) {
  const ProgramOptions options =
      Good({"--tuner=t.so", "--nccl=2.28", "--nodes=3", "--ranks=16", "--verbose"});
  EXPECT_EQ(options.host.tuner, "t.so");
  EXPECT_EQ(ToString(options.host.nccl), "2.28.0");
  EXPECT_EQ(options.host.platform.min_ranks_per_node, 5);
  EXPECT_EQ(options.host.platform.max_ranks_per_node, 6);
  EXPECT_TRUE(options.host.platform.nvls);
  EXPECT_EQ(options.host.channels, std::nullopt);
  EXPECT_TRUE(options.verbose);
  EXPECT_FALSE(options.list_symbols);
}

TEST(ProgramOptions, TakeAllThatTheHelpLists) {
  const ProgramOptions options = Good(With({"--min-ranks-per-node", "4", "--max-ranks-per-node",
                                            "12", "--channels", "24", "--without", "nvls,ll128"}));
  EXPECT_EQ(options.host.platform.min_ranks_per_node, 4);
  EXPECT_EQ(options.host.platform.max_ranks_per_node, 12);
  EXPECT_EQ(options.host.channels, 24);
  EXPECT_FALSE(options.host.platform.nvls);
  EXPECT_TRUE(options.host.platform.collnet);
  EXPECT_FALSE(options.host.platform.ll128);
  EXPECT_TRUE(Good({"--list-symbols", "--tuner", "t.so"}).list_symbols);
  EXPECT_TRUE(Good({"--help"}).help);
  for (const char* option :
       {"--tuner", "--nccl", "--nodes", "--ranks", "--min-ranks-per-node", "--max-ranks-per-node",
        "--channels", "--without", "--list-symbols", "--verbose", "--help"}) {
    EXPECT_TRUE(Has(HelpText(), option)) << option;
  }
}

TEST(ProgramOptions, InvalidOptionsAreReported) {
  EXPECT_EQ(OptionProblem({}), "--tuner is missing");
  EXPECT_EQ(OptionProblem({"--tuner", ""}), "--tuner: the path is empty");
  EXPECT_EQ(OptionProblem({"--tuner", "t.so"}), "--nccl is missing");
  EXPECT_EQ(OptionProblem({"--tuner", "t.so", "--nccl", "2.28"}), "--nodes and --ranks are needed");
  EXPECT_EQ(OptionProblem(With({"--nccl", "2"})), "--nccl: '2' is no version like 2.28.9");
  EXPECT_EQ(OptionProblem(With({"--nccl", "2.28.9.1"})),
            "--nccl: '2.28.9.1' is no version like 2.28.9");
  EXPECT_EQ(OptionProblem(With({"--nccl", "2.28.x"})),
            "--nccl: '2.28.x' is no version like 2.28.9");
  EXPECT_EQ(OptionProblem(With({"--nccl", "2.20.5"})),
            "--nccl: NCCL before 2.21 took plugins of interface v1 only");
  EXPECT_EQ(OptionProblem(With({"--ranks", "0"})), "--ranks: '0' is no number from 1 to 16777216");
  EXPECT_EQ(OptionProblem(With({"--ranks", "8x"})),
            "--ranks: '8x' is no number from 1 to 16777216");
  EXPECT_EQ(OptionProblem(With({"--nodes", "1", "--ranks", "1"})),
            "--ranks: with one rank NCCL asks no tuner");
  EXPECT_EQ(OptionProblem(With({"--nodes", "17"})), "--nodes: there are fewer ranks than nodes");
  EXPECT_EQ(OptionProblem(With({"--min-ranks-per-node", "9"})),
            "ranks per node contradict --nodes and --ranks");
  EXPECT_EQ(OptionProblem(With({"--max-ranks-per-node", "7"})),
            "ranks per node contradict --nodes and --ranks");
  EXPECT_EQ(OptionProblem(With({"--without", "nvls,pat"})),
            "--without: 'pat' is none of nvls, collnet, ll128");
  EXPECT_EQ(OptionProblem(With({"--frob", "1"})), "'--frob' is not an option");
  EXPECT_EQ(OptionProblem(With({"--frob"})), "'--frob' is not an option");
}

// Replaces standard input, output and error by pipes, and restores them afterwards.
class LineChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::fflush(stdout);
    saved_in_ = dup(STDIN_FILENO);
    saved_out_ = dup(STDOUT_FILENO);
    saved_err_ = dup(STDERR_FILENO);
    ASSERT_EQ(pipe(to_), 0);
    ASSERT_EQ(pipe(from_), 0);
    ASSERT_EQ(pipe(noise_), 0);
    dup2(to_[0], STDIN_FILENO);
    dup2(from_[1], STDOUT_FILENO);
    dup2(noise_[1], STDERR_FILENO);
  }

  void TearDown() override {
    std::fflush(stdout);
    dup2(saved_in_, STDIN_FILENO);
    dup2(saved_out_, STDOUT_FILENO);
    dup2(saved_err_, STDERR_FILENO);
    for (const int fd :
         {to_[0], from_[0], from_[1], noise_[0], noise_[1], saved_in_, saved_out_, saved_err_}) {
      close(fd);
    }
  }

  void Send(const std::string& bytes) {
    ASSERT_EQ(write(to_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void EndInput() { close(to_[1]); }

  static std::string Drain(int fd) {
    char bytes[256];
    const ssize_t got = read(fd, bytes, sizeof bytes);
    return {bytes, got > 0 ? static_cast<size_t>(got) : 0};
  }

  int to_[2];     // what the channel reads
  int from_[2];   // what the channel writes
  int noise_[2];  // standard error
  int saved_in_ = -1;
  int saved_out_ = -1;
  int saved_err_ = -1;
};

using Result = LineBuffer::Result;

TEST_F(LineChannelTest, ReadsLinesAndTheLastWithoutItsEnd) {
  LineChannel channel;
  ASSERT_TRUE(channel.ok());
  Send("one\n\ntwo\r\nthr");
  Send("ee");
  EndInput();
  std::string line;
  for (const char* expected : {"one", "", "two\r", "three"}) {
    ASSERT_EQ(channel.ReadLine(&line), Result::kLine);
    EXPECT_EQ(line, expected);
  }
  EXPECT_EQ(channel.ReadLine(&line), Result::kEnd);
  EXPECT_EQ(channel.ReadLine(&line), Result::kEnd);
}

TEST_F(LineChannelTest, PassesOverALineThatIsTooLong) {
  LineChannel channel;
  ASSERT_TRUE(channel.ok());
  std::thread writer([this] {
    Send(std::string((3 << 20) + 17, 'x') + "\nshort\n" + std::string(2 << 20, 'y'));
    EndInput();
  });
  std::string line;
  EXPECT_EQ(channel.ReadLine(&line), Result::kTooLong);
  EXPECT_EQ(channel.ReadLine(&line), Result::kLine);
  EXPECT_EQ(line, "short");
  EXPECT_EQ(channel.ReadLine(&line), Result::kTooLong);
  EXPECT_EQ(channel.ReadLine(&line), Result::kEnd);
  writer.join();
}

TEST_F(LineChannelTest, KeepsOthersOffItsInputAndOutput) {
  LineChannel channel;
  ASSERT_TRUE(channel.ok());
  Send("for the channel\n");
  EndInput();
  EXPECT_EQ(Drain(STDIN_FILENO), "");
  std::puts("noise");
  std::fflush(stdout);
  EXPECT_EQ(Drain(noise_[0]), "noise\n");
  EXPECT_TRUE(channel.WriteLine("{}"));
  EXPECT_EQ(Drain(from_[0]), "{}\n");
  std::string line;
  EXPECT_EQ(channel.ReadLine(&line), Result::kLine);
  EXPECT_EQ(line, "for the channel");
}

TEST(Guarded, SeesNothingWhileWritesStayInside) {
  Guarded<int> number("channel count", 7);
  EXPECT_EQ(number.get(), 7);
  *number.data() = -1;
  EXPECT_EQ(number.get(), -1);
  EXPECT_EQ(number.TakeDamage(), std::nullopt);
  GuardedBytes bytes("cost table", 84);
  std::memset(bytes.data(), 0xFF, bytes.size());
  EXPECT_EQ(bytes.TakeDamage(), std::nullopt);
}

TEST(Guarded, ReportsHowFarAWriteMissed) {
  Guarded<float> cost("cost table", 1.0f);
  cost.data()[1] = 0.0f;
  EXPECT_EQ(cost.TakeDamage(),
            "wrote outside of the cost table (4 bytes): 4 bytes up to 4 behind "
            "it");
  EXPECT_EQ(cost.TakeDamage(), std::nullopt);
  cost.data()[-2] = 0.0f;
  cost.data()[9] = 0.0f;
  EXPECT_EQ(cost.TakeDamage(),
            "wrote outside of the cost table (4 bytes): 4 bytes up to 8 before "
            "it, 4 bytes up to 36 behind it");
  EXPECT_EQ(cost.get(), 1.0f);
}

TEST(Guarded, SeesAWriteAnywhereNearby) {
  GuardedBytes bytes("model constants", 1152);
  auto* data = static_cast<unsigned char*>(bytes.data());
  for (const int at : {-4096, -1, 1152, 5247}) {
    data[at] ^= 1;
    EXPECT_NE(bytes.TakeDamage(), std::nullopt) << at;
    EXPECT_EQ(bytes.TakeDamage(), std::nullopt) << at;
  }
}

}  // namespace
}  // namespace nccltune::host
