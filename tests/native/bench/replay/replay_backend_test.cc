// SPDX-License-Identifier: Apache-2.0
// Tests the replay with our real tuner plugin.
#include "bench/replay/replay_backend.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "bench/support.h"

namespace nccltune::bench {
namespace {

constexpr const char* kPlatform =
    R"({"schema_version":1,"name":"lab","gpu":"G","gpus":4,"nodes":4,"nccl_version":"2.28.9"})";

// Samples at 1 KiB and 4 KiB, with some spread: default 100 us, tree/ll 50 us, ring/simple on 8
// channels 70 us.
std::string Samples() {
  std::string lines;
  for (const int bytes : {1024, 4096}) {
    for (int i = 0; i < 5; ++i) {
      const auto add = [&](const std::string& choice, int time) {
        lines += R"({"collective":"allreduce","bytes":)" + std::to_string(bytes) + R"(,"choice":)" +
                 choice + R"(,"time_us":)" + std::to_string(time + i) + R"(,"wrong":0})" + "\n";
      };
      add(R"("default")", 100);
      add(R"({"algorithm":"tree","protocol":"ll"})", 50);
      add(R"({"algorithm":"ring","protocol":"simple","channels":8})", 70);
    }
  }
  for (int i = 0; i < 5; ++i) {
    lines += R"({"collective":"sendrecv","bytes":1024,"choice":"default","time_us":)" +
             std::to_string(30 + i) + "}\n";
  }
  return lines;
}

// The exchange of a run with a single process.
class ScriptedExchange : public ProcessExchange {
 public:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override {
    all->assign(static_cast<size_t>(processes), std::string(mine));
    if (!other.empty()) all->back() = other;
    return !ending;
  }

  int processes = 1;
  std::string other;
  bool ending = false;
};

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    folder_.Write("platform.json", kPlatform);
    folder_.Write("samples.jsonl", Samples());
  }
  ~ReplayTest() override { unsetenv("NCCLTUNE_CONFIG"); }

  void UseRules(const std::string& rules) {
    folder_.Write("tuner.conf", rules);
    setenv("NCCLTUNE_CONFIG", (folder_.path() + "/tuner.conf").c_str(), 1);
  }

  std::optional<OpenError> Open(ReplayOptions options = {}) {
    options.study = folder_.path();
    if (options.tuner_path.empty()) options.tuner_path = TUNER_PLUGIN;
    exchange_.processes = world_.processes;
    backend_ = std::make_unique<ReplayBackend>(options);
    return backend_->Open(world_, &exchange_, &info_);
  }
  void MustOpen(const ReplayOptions& options = {}) {
    const std::optional<OpenError> error = Open(options);
    ASSERT_FALSE(error) << error->text;
  }

  static Step MakeStep(Choice choice = {}, size_t bytes = 1024) {
    Step step;
    step.bytes = bytes;
    step.choice = choice;
    return step;
  }

  ScopedFolder folder_;
  World world_;
  ScriptedExchange exchange_;
  BackendInfo info_;
  std::unique_ptr<ReplayBackend> backend_;
};

const Choice kDefaultChoice;
const Choice kTuned = {Choice::Kind::kTuned, {}, -1, 0};
const Choice kTree = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, -1, 0};
const Choice kRing8 = {Choice::Kind::kForced, {abi::kRing, abi::kSimple}, 8, 0};

TEST_F(ReplayTest, ReportsTheRecording) {
  MustOpen();
  EXPECT_EQ(info_.backend, "replay");
  EXPECT_EQ(info_.replay, "lab");
  EXPECT_EQ(info_.nccl_version, "2.28.9");
  EXPECT_EQ(info_.nccl_from, "recording");
  EXPECT_EQ(info_.tuner_interface, 5);
  EXPECT_EQ(info_.tuner_control, NCCLTUNE_TUNER_CONTROL_VERSION);
  EXPECT_EQ(info_.nodes, 4);
  EXPECT_EQ(info_.ranks, 4);
  ASSERT_EQ(info_.gpus.size(), 4U);
  EXPECT_EQ(info_.gpus[3].rank, 3);
  EXPECT_EQ(info_.gpus[3].name, "G");
  EXPECT_EQ(info_.collectives,
            (std::vector<Collective>{Collective::kAllReduce, Collective::kSendRecv}));
  EXPECT_EQ(info_.dtypes.size(), DtypeNames().size()) << "the recording names none";
  EXPECT_FALSE(info_.graph || info_.registered || info_.chunk);
}

TEST_F(ReplayTest, AnotherNcclMayBePlayed) {
  ReplayOptions options;
  options.nccl_version = NcclVersion{2, 30, 7};
  MustOpen(options);
  EXPECT_EQ(info_.nccl_version, "2.30.7");
  EXPECT_EQ(info_.tuner_interface, 6);
}

TEST_F(ReplayTest, EachChoiceDrawsFromItsOwnTimings) {
  UseRules("allreduce,0,2000,tree,ll,-1,4,4\n");
  MustOpen();
  const auto range = [this](const Step& step) {
    const StepResult result = backend_->Run(step);
    EXPECT_FALSE(result.error) << result.error->text;
    EXPECT_EQ(result.timings.size(), 4U);
    return static_cast<int>(result.timings.at(0).event_us) / 10 * 10;
  };
  EXPECT_EQ(range(MakeStep(kDefaultChoice)), 100);
  EXPECT_EQ(range(MakeStep(kTree)), 50);
  EXPECT_EQ(range(MakeStep(kRing8)), 70);
  EXPECT_EQ(range(MakeStep(kTuned)), 50) << "a rule covers this size";
  EXPECT_EQ(range(MakeStep(kTuned, 4096)), 100) << "and not this one";
  // A choice forced by an earlier step must not affect later ones.
  EXPECT_EQ(range(MakeStep(kDefaultChoice)), 100) << "the default is forced over the rule";
}

TEST_F(ReplayTest, ReportsWhatRan) {
  UseRules("allreduce,0,2000,ring,simple,8,4,4\n");
  MustOpen();
  EXPECT_FALSE(backend_->Run(MakeStep(kDefaultChoice)).ran) << "the recording does not state it";
  EXPECT_EQ(backend_->Run(MakeStep(kTree)).ran,
            (ExecutedChoice{{abi::kTree, abi::kLl}, std::nullopt, std::nullopt}));
  EXPECT_EQ(backend_->Run(MakeStep(kTuned)).ran,
            (ExecutedChoice{{abi::kRing, abi::kSimple}, 8, std::nullopt}));
  EXPECT_TRUE(backend_->Run(MakeStep(kRing8)).applied);
}

TEST_F(ReplayTest, AChoiceThatThePlatformCannotRunIsNotApplied) {
  MustOpen();
  const StepResult result =
      backend_->Run(MakeStep({Choice::Kind::kForced, {abi::kNvls, abi::kSimple}, -1, 0}));
  EXPECT_FALSE(result.applied);
  EXPECT_FALSE(result.error);
  EXPECT_GE(result.timings.at(0).event_us, 100) << "NCCL's default runs in its place";
}

TEST_F(ReplayTest, AGroupIsReplayedOnlyIfItWasRecorded) {
  folder_.Write("samples.jsonl",
                R"({"collective":"allreduce","bytes":1024,"choice":"default","time_us":100})"
                "\n"
                R"({"collective":"allreduce","bytes":1024,"choice":"default","time_us":500,)"
                R"("group_calls":60,"pipe_ops":3})"
                "\n"
                R"({"collective":"allreduce","bytes":1024,"choice":"default","time_us":9000,)"
                R"("pipe_ops":9})"
                "\n");
  MustOpen();
  EXPECT_TRUE(info_.group_calls);
  Step step = MakeStep();
  StepResult result = backend_->Run(step);
  EXPECT_EQ(result.timings.at(0).event_us, 100);
  EXPECT_EQ(result.seen->pipe_ops, 1);
  step.group_calls = 60;
  result = backend_->Run(step);
  EXPECT_EQ(result.timings.at(0).event_us, 500);
  EXPECT_EQ(result.seen->pipe_ops, 3);
  EXPECT_EQ(backend_->Table(step).row.seen->pipe_ops, 3);
  step.group_calls = 4;
  EXPECT_EQ(backend_->Run(step).error->kind, ErrorKind::kUnsupported);
  EXPECT_EQ(backend_->Table(step).error->text, "the recording holds no groups of 4 calls");
  step.group_calls = 60;
  step.registered = true;
  EXPECT_EQ(backend_->Table(step).error->text,
            "the recording holds no groups of 60 calls with registered buffers");
}

// NCCL's tuner gets the pipe ops of the recording, so rules that name them apply.
TEST_F(ReplayTest, RulesForPipeOpsApplyToRecordedGroups) {
  std::string samples;
  for (const char* choice : {R"("default")", R"({"algorithm":"tree","protocol":"ll"})"}) {
    for (const char* kind : {"", R"(,"group_calls":60,"pipe_ops":3)"}) {
      samples += R"({"collective":"allreduce","bytes":1024,"time_us":5,"choice":)" +
                 std::string(choice) + kind + "}\n";
    }
  }
  folder_.Write("samples.jsonl", samples);
  UseRules("allreduce,0,2000,tree,ll,-1,4,4,3\n");
  MustOpen();
  Step step = MakeStep(kTuned);
  EXPECT_FALSE(backend_->Run(step).ran);
  step.group_calls = 60;
  EXPECT_EQ(backend_->Run(step).ran->combination, (host::Combination{abi::kTree, abi::kLl}));
}

TEST_F(ReplayTest, CallsThatWereNotRecordedAreUnsupported) {
  MustOpen();
  Choice ring = kRing8;
  ring.channels = 4;
  Step halves = MakeStep();
  halves.in_place = true;
  for (const Step& step : {MakeStep(ring), MakeStep(kTree, 512), MakeStep(kTree, 8192), halves}) {
    const StepResult result = backend_->Run(step);
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->kind, ErrorKind::kUnsupported);
    EXPECT_FALSE(result.error->fatal);
    EXPECT_TRUE(result.timings.empty());
  }
}

TEST_F(ReplayTest, CollectivesThatNoTunerIsAskedAboutRunTheirDefault) {
  MustOpen();
  Step step = MakeStep();
  step.collective = Collective::kSendRecv;
  const StepResult result = backend_->Run(step);
  ASSERT_FALSE(result.error) << result.error->text;
  EXPECT_GE(result.timings.at(0).event_us, 30);
  EXPECT_LE(result.timings.at(0).event_us, 34);
  EXPECT_FALSE(result.timings.at(0).wrong) << "nobody checked that recording";
}

TEST_F(ReplayTest, ChecksAreThoseOfTheRecording) {
  MustOpen();
  Step step = MakeStep();
  EXPECT_EQ(backend_->Run(step).timings.at(0).wrong, 0);
  step.check = false;
  EXPECT_FALSE(backend_->Run(step).timings.at(0).wrong);
}

TEST_F(ReplayTest, OneStepIsOneTimingInAllProcessesAndAtAllTimes) {
  MustOpen();
  Step step = MakeStep();
  step.seed = 3;
  step.round = 4;
  const double time = backend_->Run(step).timings.at(0).event_us;
  for (const RankTiming& timing : backend_->Run(step).timings) EXPECT_EQ(timing.event_us, time);
  step.sequence = 99;
  step.iterations = 50;
  EXPECT_EQ(backend_->Run(step).timings.at(0).event_us, time);

  world_.processes = 3;
  int ranks = 0;
  for (world_.process = 0; world_.process < 3; ++world_.process) {
    MustOpen();
    for (const RankTiming& timing : backend_->Run(step).timings) {
      EXPECT_EQ(timing.rank, ranks++);
      EXPECT_EQ(timing.event_us, time);
    }
  }
  EXPECT_EQ(ranks, 4);
}

TEST_F(ReplayTest, SeedRoundAndRepeatEachDrawAnew) {
  MustOpen();
  const auto draws = [this](auto change) {
    std::set<double> times;
    for (int i = 0; i < 60; ++i) {
      Step step = MakeStep();
      change(&step, i);
      times.insert(backend_->Run(step).timings.at(0).event_us);
    }
    return times.size();
  };
  EXPECT_EQ(draws([](Step*, int) {}), 1U);
  EXPECT_EQ(draws([](Step* step, int i) { step->seed = static_cast<uint64_t>(i); }), 5U);
  EXPECT_EQ(draws([](Step* step, int i) { step->round = i; }), 5U);
  EXPECT_EQ(draws([](Step* step, int i) { step->repeat = i; }), 5U);
}

TEST_F(ReplayTest, DefaultAndTunedOfOneRoundAreIndependent) {
  MustOpen();
  int same = 0;
  for (int round = 0; round < 100; ++round) {
    Step a = MakeStep(kDefaultChoice);
    Step b = MakeStep(kTuned);
    a.round = b.round = round;
    same += backend_->Run(a).timings.at(0).event_us == backend_->Run(b).timings.at(0).event_us;
  }
  EXPECT_GT(same, 5);
  EXPECT_LT(same, 45);  // one in five is expected by chance
}

TEST_F(ReplayTest, DifferentDecisionsAreATimeout) {
  world_.processes = 4;
  MustOpen();
  exchange_.other = R"({"algorithm":"tree","protocol":"ll"})";
  const StepResult result = backend_->Run(MakeStep());
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->kind, ErrorKind::kTimeout);
  EXPECT_TRUE(result.error->fatal);
  EXPECT_EQ(result.error->rank, 3);
  EXPECT_NE(result.error->text.find("do all have the same rules?"), std::string::npos);
}

TEST_F(ReplayTest, ThePredictionsAreThoseOfTheRecording) {
  MustOpen();
  const TableResult nominal = backend_->Table(MakeStep());
  ASSERT_FALSE(nominal.error);
  ASSERT_EQ(nominal.row.costs.size(), 2U) << "the combinations that were recorded";
  EXPECT_FALSE(nominal.row.costs[0].second);
  EXPECT_FALSE(nominal.row.predicted.known());

  folder_.Write("tables.jsonl", R"({"collective":"allreduce","bytes":1024,"costs":)"
                                R"({"tree/ll":12.5,"ring/ll":11,"ring/simple":30}})"
                                "\n");
  MustOpen();
  const TableResult recorded = backend_->Table(MakeStep());
  ASSERT_EQ(recorded.row.costs.size(), 3U);
  EXPECT_EQ(recorded.row.costs[0].second, 12.5);
  EXPECT_EQ(recorded.row.predicted, (host::Combination{abi::kRing, abi::kLl}));
}

TEST_F(ReplayTest, WithoutAnyForcedRecordingTheLegalCombinationsAreListed) {
  folder_.Write("samples.jsonl",
                R"({"collective":"allreduce","bytes":8,"choice":"default","time_us":1})"
                "\n");
  MustOpen();
  const TableResult table = backend_->Table(MakeStep());
  std::set<std::string> names;
  for (const auto& [combination, cost] : table.row.costs) {
    EXPECT_FALSE(cost);
    names.insert(host::CombinationName(combination));
  }
  EXPECT_TRUE(names.contains("ring/simple"));
  EXPECT_TRUE(names.contains("tree/ll"));
  EXPECT_FALSE(names.contains("collnet_direct/simple"));
}

TEST_F(ReplayTest, AbortEndsTheWaitOfASlowReplay) {
  ReplayOptions options;
  options.pace = 1000;
  MustOpen(options);
  Step step = MakeStep();
  step.iterations = 1'000'000;  // takes a day if not aborted
  std::thread aborter([this] { backend_->Abort(); });
  backend_->Run(step);
  aborter.join();
}

TEST_F(ReplayTest, RunsThatCannotBeReplayedAreReported) {
  const auto text = [this](const ReplayOptions& options, OpenError::Kind kind) {
    const std::optional<OpenError> error = Open(options);
    EXPECT_TRUE(error);
    EXPECT_EQ(error->kind, kind);
    EXPECT_FALSE(error->hint.empty());
    return error->text;
  };
  ReplayOptions options;
  options.tuner_path = "/no/such/plugin.so";
  EXPECT_NE(text(options, OpenError::Kind::kCannotRun).find("cannot be opened"), std::string::npos);
  options = {};
  options.nccl_version = NcclVersion{2, 20, 5};
  EXPECT_NE(text(options, OpenError::Kind::kCannotRun).find("knows none of the interfaces"),
            std::string::npos);
  options = {};
  world_.processes = 5;
  EXPECT_NE(text(options, OpenError::Kind::kBadInput).find("5 processes"), std::string::npos);
  world_.processes = 2;
  world_.gpus_per_process = 4;
  EXPECT_NE(text(options, OpenError::Kind::kBadInput).find("GPUs each do not fit"),
            std::string::npos);
  world_.gpus_per_process = 2;
  EXPECT_FALSE(Open());
  world_ = {};
  world_.emulated_nodes = 2;
  EXPECT_NE(text(options, OpenError::Kind::kBadInput).find("not on 2 nodes"), std::string::npos);
  world_ = {};
  exchange_.other = "another hash";
  world_.processes = 2;
  EXPECT_NE(text(options, OpenError::Kind::kBadInput).find("replays another recording"),
            std::string::npos);
  exchange_.other.clear();
  world_ = {};
  folder_.Write("platform.json", R"({"gpus":4,"nodes":4})");
  EXPECT_NE(text(options, OpenError::Kind::kBadInput).find("does not state its NCCL version"),
            std::string::npos);
  folder_.Write("platform.json", R"({"gpus":1,"nodes":1,"nccl_version":"2.28.9"})");
  EXPECT_NE(text(options, OpenError::Kind::kBadInput).find("with one rank"), std::string::npos);
}

TEST(Share, EveryRankIsPlayedByOneProcess) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int processes = 1; processes <= ranks; ++processes) {
      int next = 0;
      for (int process = 0; process < processes; ++process) {
        World world;
        world.process = process;
        world.processes = processes;
        const RankRange share = RanksOf(world, ranks);
        EXPECT_EQ(share.first, next);
        EXPECT_GT(share.end, share.first);
        next = share.end;
      }
      EXPECT_EQ(next, ranks);
    }
  }
}

TEST(TunerControl, OnlyOurPluginIsTaken) {
  std::string error;
  EXPECT_EQ(TunerControl::Open("/no/such/plugin.so", &error), nullptr);
  EXPECT_NE(error.find("cannot be opened"), std::string::npos);
  EXPECT_EQ(TunerControl::Open("libm.so.6", &error), nullptr);
  EXPECT_NE(error.find("is not nccltune's tuner plugin"), std::string::npos);
  const auto control = TunerControl::Open(TUNER_PLUGIN, &error);
  ASSERT_NE(control, nullptr) << error;
  EXPECT_TRUE(control->Apply(Collective::kAllReduce, kTree));
  EXPECT_TRUE(control->Apply(Collective::kAllReduce, kTuned));
  EXPECT_TRUE(control->Apply(Collective::kSendRecv, kDefaultChoice));
  EXPECT_FALSE(control->Apply(Collective::kAllReduce,
                              {Choice::Kind::kForced, {abi::kTree, abi::kLl}, 65, 0}));
  EXPECT_TRUE(control->Record(true));
  EXPECT_TRUE(control->Record(false));
  EXPECT_FALSE(control->LastTable(Collective::kReduce, 1));
  EXPECT_FALSE(control->LastDecision(Collective::kSendRecv, 0));
}

}  // namespace
}  // namespace nccltune::bench
