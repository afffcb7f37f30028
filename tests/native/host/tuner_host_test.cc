// SPDX-License-Identifier: Apache-2.0
// Tests the host with complete plugins, well-behaved and hostile.
#include "host/tuner_host.h"
#include "testing.h"

namespace nccltune::host {
namespace {

class TunerHostTest : public ::testing::Test {
 protected:
  void TearDown() override {
    host_.reset();
    unsetenv("SCRIPTED_TUNER");
  }

  // Starts a host for 32 ranks on 4 nodes under NCCL 2.minor.9.
  bool Start(int minor, const char* script = "", const char* plugin = SCRIPTED_PLUGIN) {
    host_.reset();
    setenv("SCRIPTED_TUNER", script, 1);
    HostOptions options;
    options.tuner = plugin;
    options.nccl = {2, minor, 9};
    options.platform = {.nodes = 4, .ranks = 32, .min_ranks_per_node = 7, .max_ranks_per_node = 9};
    host_ = TunerHost::Start(options, &report_, &failure_);
    return host_ != nullptr;
  }

  Decision Ask(const DecisionRequest& request = {.collective = abi::kAllReduce, .bytes = 65536}) {
    return host_->Decide(request);
  }

  static std::string Codes(const std::vector<Warning>& warnings) {
    std::string codes;
    for (const Warning& warning : warnings) codes += (codes.empty() ? "" : " ") + warning.code;
    return codes;
  }

  static std::string Lines(const LogLines& log) {
    std::string lines;
    for (const LogLine& line : log.lines) lines += line.text + "\n";
    return lines;
  }

  std::unique_ptr<TunerHost> host_;
  InitReport report_;
  Failure failure_;
};

TEST_F(TunerHostTest, TakesTheNewestInterfaceThatTheVersionKnows) {
  const int taken[] = {2, 3, 3, 4, 4, 4, 4, 5, 5, 6, 6, 7};  // 2.21 to 2.32
  for (int minor = 21; minor <= 32; ++minor) {
    ASSERT_TRUE(Start(minor)) << failure_.text;
    EXPECT_EQ(report_.interface, taken[minor - 21]) << minor;
    EXPECT_EQ(report_.exported, (std::vector<int>{7, 6, 5, 4, 3, 2}));
    EXPECT_EQ(report_.plugin_name, "scripted");
    EXPECT_TRUE(report_.rules_exact);
  }
  ASSERT_TRUE(Start(33));
  EXPECT_EQ(report_.interface, 7);
  EXPECT_FALSE(report_.rules_exact);
}

TEST_F(TunerHostTest, TakesAnOlderInterfaceWhereThereIsNoNewer) {
  for (const int minor : {21, 22, 27, 28, 30, 32}) {
    ASSERT_TRUE(Start(minor, "", SCRIPTED_V2_PLUGIN)) << failure_.text;
    EXPECT_EQ(report_.interface, 2);
  }
  ASSERT_TRUE(Start(32, "", SCRIPTED_V5_PLUGIN));
  EXPECT_EQ(report_.interface, 5);
  EXPECT_FALSE(Start(27, "", SCRIPTED_V5_PLUGIN));
  EXPECT_EQ(failure_.kind, "no_interface");
  EXPECT_EQ(report_.exported, std::vector<int>{5});
  EXPECT_FALSE(Start(21, "", SCRIPTED_V3_PLUGIN));
  EXPECT_EQ(failure_.kind, "no_interface");
}

TEST_F(TunerHostTest, RejectsLibrariesThatAreNoTuners) {
  EXPECT_FALSE(Start(28, "", NO_PLUGIN));
  EXPECT_EQ(failure_.kind, "no_interface");
  EXPECT_TRUE(report_.exported.empty());
  EXPECT_FALSE(Start(28, "", "/nowhere/libnccl-tuner.so"));
  EXPECT_EQ(failure_.kind, "load");
  EXPECT_TRUE(Has(failure_.text, "/nowhere/libnccl-tuner.so")) << failure_.text;
  EXPECT_FALSE(Start(28, "", "/dev/null"));
  EXPECT_EQ(failure_.kind, "load");
  EXPECT_FALSE(Start(28, "", ODD_PLUGIN));
  EXPECT_EQ(failure_.kind, "no_interface");
  EXPECT_EQ(failure_.text, "ncclTunerPlugin_v3.init is null, which NCCL would call");
  EXPECT_EQ(report_.exported, (std::vector<int>{3, 1}));
}

TEST_F(TunerHostTest, PassesTheArgumentsOfTheVersion) {
  ASSERT_TRUE(Start(27));
  EXPECT_EQ(Lines(report_.log), "init v4 ranks=32 nodes=4\n");
  ASSERT_TRUE(Start(28));
  EXPECT_EQ(Lines(report_.log), "domains=4,7,9 constants=6.8,43.8\ninit v5 ranks=32 nodes=4\n");
  ASSERT_TRUE(Start(31));
  EXPECT_EQ(Lines(report_.log), "domains=4,7,9 constants=0,0\ninit v6 ranks=32 nodes=4\n");
  ASSERT_TRUE(Start(32));
  EXPECT_EQ(Lines(report_.log), "domains=4,7,9 constants=0,0\ninit v7 ranks=32 nodes=4\n");
}

TEST_F(TunerHostTest, CallsTheInterfaceOfTheVersion) {
  const DecisionRequest request{
      .collective = abi::kAllGather, .bytes = 123, .pipe_ops = 2, .registered = true};
  ASSERT_TRUE(Start(21));
  EXPECT_EQ(Lines(Ask(request).log),
            "collnet=0 nvls=0 choice=-1,-1\n"
            "coll v2 context=1 func=2 bytes=123 pipe=2 table=0x0 reg=-1 channels=0\n");
  // Since 2.28 CollNet Chain needs at most eight ranks a node; here it is nine.
  for (const int minor : {27, 28}) {
    ASSERT_TRUE(Start(minor, "", SCRIPTED_V2_PLUGIN));
    EXPECT_EQ(Lines(Ask({.collective = abi::kAllReduce, .bytes = 1}).log),
              std::string(minor == 27 ? "collnet=1" : "collnet=0") +
                  " nvls=1 choice=-1,-1\n"
                  "coll v2 context=1 func=4 bytes=1 pipe=1 table=0x0 reg=-1 channels=0\n");
  }
  ASSERT_TRUE(Start(22));
  EXPECT_EQ(Lines(Ask(request).log),
            "coll v3 context=1 func=2 bytes=123 pipe=2 table=6x3 reg=-1 channels=0\n");
  ASSERT_TRUE(Start(24));
  EXPECT_EQ(Lines(Ask(request).log),
            "coll v4 context=1 func=2 bytes=123 pipe=2 table=7x3 reg=1 channels=0\n");
  ASSERT_TRUE(Start(32));
  EXPECT_EQ(Lines(Ask(request).log),
            "coll v7 context=1 func=2 bytes=123 pipe=2 table=7x3 reg=1 channels=0\n");
}

TEST_F(TunerHostTest, ReadsTheAnswerFromTheTable) {
  for (int minor = 22; minor <= 32; ++minor) {
    ASSERT_TRUE(Start(minor, "set=5:0 channels=8"));  // entry 5 is ring/simple
    const Decision decision = Ask();
    EXPECT_EQ(decision.outcome, DecisionResult::kChosen) << minor;
    EXPECT_EQ(decision.selected, (Combination{abi::kRing, abi::kSimple})) << minor;
    EXPECT_EQ(decision.choice.channels, 8);
    EXPECT_EQ(Codes(decision.warnings), "");
    ASSERT_TRUE(Start(minor));
    EXPECT_EQ(Ask().outcome, DecisionResult::kDefault) << minor;
  }
}

TEST_F(TunerHostTest, UsesTheCostsOfTheRequest) {
  ASSERT_TRUE(Start(30, "set=0:6"));
  DecisionRequest request{.collective = abi::kAllReduce, .bytes = 65536};
  request.costs = {{{{abi::kTree, abi::kLl}, 9.0f}, {{abi::kRing, abi::kLl}, 5.0f}}};
  EXPECT_EQ(Ask(request).selected, (Combination{abi::kRing, abi::kLl}));
  request.costs->back().second = 7.0f;
  EXPECT_EQ(Ask(request).selected, (Combination{abi::kTree, abi::kLl}));
}

TEST_F(TunerHostTest, PutsTheChoiceOfV2IntoTheTable) {
  for (const int minor : {22, 28, 30, 32}) {
    ASSERT_TRUE(Start(minor, "named=0,1 channels=2", SCRIPTED_V2_PLUGIN));
    Decision decision = Ask();
    EXPECT_EQ(decision.selected, (Combination{abi::kTree, abi::kLl128})) << minor;
    EXPECT_EQ(decision.choice.channels, 2);
    ASSERT_TRUE(Start(minor, "named=4,0", SCRIPTED_V2_PLUGIN));
    decision = Ask();
    EXPECT_EQ(decision.outcome, DecisionResult::kDefault) << minor;
    EXPECT_EQ(Codes(decision.warnings), "choice_dropped") << minor;
    ASSERT_TRUE(Start(minor, "named=99,0", SCRIPTED_V2_PLUGIN));
    EXPECT_EQ(Codes(Ask().warnings), "choice_dropped") << minor;
  }
  ASSERT_TRUE(Start(21, "named=4,0", SCRIPTED_V2_PLUGIN));
  EXPECT_EQ(Ask().selected, (Combination{abi::kNvls, abi::kLl}));
  ASSERT_TRUE(Start(21, "named=99,0", SCRIPTED_V2_PLUGIN));
  EXPECT_EQ(Ask().failure->kind, "invalid_choice");
}

TEST_F(TunerHostTest, ReportsAnErrorOfInit) {
  for (const int minor : {21, 27, 28, 32}) {
    EXPECT_FALSE(Start(minor, "init=3"));
    EXPECT_EQ(failure_.kind, "init");
    EXPECT_EQ(failure_.text,
              "init returned 3 (ncclInternalError): NCCL fails to create the communicator");
    EXPECT_TRUE(Has(Lines(report_.log), "ranks=32"));
  }
}

TEST_F(TunerHostTest, ReportsAnErrorOfGetCollInfo) {
  for (const int minor : {21, 27, 28, 32}) {
    ASSERT_TRUE(Start(minor, "coll=5 channels=3"));
    const Decision decision = Ask();
    EXPECT_EQ(decision.outcome, DecisionResult::kFails);
    EXPECT_EQ(decision.failure->kind, "plugin_error");
    EXPECT_EQ(decision.channels_requested, 3);
  }
  ASSERT_TRUE(Start(28, "coll=-77"));
  EXPECT_EQ(Ask().failure->text, "getCollInfo returned -77: NCCL fails the collective with it");
}

TEST_F(TunerHostTest, ReportsAnErrorOfFinalize) {
  ASSERT_TRUE(Start(28, "finalize=2"));
  EXPECT_EQ(host_->Finish(),
            "finalize returned 2 (ncclSystemError): NCCL fails to destroy the communicator");
  EXPECT_EQ(host_->Finish(), "");
  EXPECT_EQ(Ask().failure->kind, "finished");
}

TEST_F(TunerHostTest, SeesWritesOutsideOfTheTable) {
  ASSERT_TRUE(Start(28, "set=21:0 set=-1:0 set=100:0"));
  const Decision decision = Ask();
  EXPECT_EQ(Codes(decision.warnings), "wrote_outside");
  EXPECT_EQ(decision.warnings[0].text,
            "the plugin's getCollInfo wrote outside of the cost table (84 bytes): 4 bytes up to 4 "
            "before it, 8 bytes up to 320 behind it");
  EXPECT_EQ(decision.outcome, DecisionResult::kDefault);
  // Writes a seventh row to the six-row table of NCCL 2.22.
  ASSERT_TRUE(Start(22, "set=20:0"));
  EXPECT_EQ(Codes(Ask().warnings), "wrote_outside");
}

TEST_F(TunerHostTest, SeesEditsOfTheConstantsAndWritesBehindThem) {
  ASSERT_TRUE(Start(28, "constant=143:9.5 constant=0:6.8"));
  ASSERT_EQ(report_.constants_changed.size(), 1u);
  EXPECT_EQ(report_.constants_changed[0].name, "perChMaxNVLSTreeBws[3][2]");
  EXPECT_EQ(report_.constants_changed[0].before, 43.8);
  EXPECT_EQ(report_.constants_changed[0].after, 9.5);
  EXPECT_EQ(Codes(report_.warnings), "constants_changed");
  // Writes the 1272 bytes of v7 over the 1152 bytes of v5.
  ASSERT_TRUE(Start(30, "constant=158:1"));
  EXPECT_EQ(Codes(report_.warnings), "wrote_outside");
  ASSERT_TRUE(Start(32, "constant=158:1"));
  EXPECT_EQ(Codes(report_.warnings), "constants_changed");
}

TEST_F(TunerHostTest, AsksForAChunkSizeFrom230) {
  ASSERT_TRUE(Start(29, "set=5:0 chunk=4096"));
  EXPECT_EQ(Ask().choice.chunk_bytes, std::nullopt);
  EXPECT_FALSE(report_.has_chunk_size);
  ASSERT_TRUE(Start(30, "set=5:0 channels=4 chunk=5000"));
  EXPECT_TRUE(report_.has_chunk_size);
  Decision decision = Ask();
  EXPECT_EQ(decision.choice.chunk_bytes, 4608u);  // nine grains of 512
  EXPECT_TRUE(
      Has(Lines(decision.log), "chunk func=4 bytes=16384 choice=1,2 channels=1 chunk=2097152"))
      << Lines(decision.log);
  ASSERT_TRUE(Start(30, "set=2:0 chunk=99999999"));
  decision = Ask();
  EXPECT_EQ(decision.choice.chunk_bytes, 524288u);
  EXPECT_EQ(Codes(decision.warnings), "chunk_cut");
  ASSERT_TRUE(Start(30, "set=1:0 chunk=1919"));
  decision = Ask();
  EXPECT_EQ(decision.choice.chunk_bytes, 0u);
  EXPECT_EQ(Codes(decision.warnings), "chunk_below_grain");
  ASSERT_TRUE(Start(30, "set=0:0 chunk_result=1"));
  EXPECT_EQ(Ask().failure->kind, "plugin_error");
  ASSERT_TRUE(Start(30, "chunk=4096"));
  EXPECT_EQ(Ask().outcome, DecisionResult::kDefault);
}

TEST_F(TunerHostTest, AsksForTheChunkOfTheWholeMessageWithCollNet) {
  ASSERT_TRUE(Start(30, "set=8:0 channels=4"));
  EXPECT_EQ(Codes(Ask().warnings), "not_usable_written not_usable_selected");
  EXPECT_TRUE(Has(Lines(Ask().log), "chunk func=4 bytes=65536 choice=2,2 channels=4 chunk=524288"));
}

TEST_F(TunerHostTest, StandsInForNcclsVersion) {
  for (const char* code : {"version 22209\n", "version 22809\n", "version 23209\n"}) {
    ASSERT_TRUE(Start((std::atoi(code + 8) - 20000) / 100, "version"));
    EXPECT_TRUE(Has(Lines(report_.log), code)) << Lines(report_.log);
  }
}

TEST_F(TunerHostTest, KeepsThePluginsWarnings) {
  ASSERT_TRUE(Start(28, "log=careful"));
  const Decision decision = Ask();
  ASSERT_EQ(decision.log.lines.size(), 2u);
  EXPECT_EQ(decision.log.lines[1].level, abi::kLogWarn);
  EXPECT_EQ(decision.log.lines[1].text, "careful");
}

TEST_F(TunerHostTest, IsTakenDownByAPluginThatCrashes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Start(28, "crash_init"), "");
  ASSERT_TRUE(Start(28, "crash"));
  EXPECT_DEATH(Ask(), "");
}

}  // namespace
}  // namespace nccltune::host
