// SPDX-License-Identifier: Apache-2.0
#include "host/protocol.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

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

}  // namespace
}  // namespace nccltune::host
