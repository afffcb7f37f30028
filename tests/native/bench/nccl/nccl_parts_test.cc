// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/agreement.h"
#include "bench/nccl/call_layout.h"
#include "bench/nccl/observation.h"
#include "bench/nccl/team.h"
#include "bench/tuner_control.h"
#include "host/tuner_host.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

// An exchange in which this process is the first and `others` follow.
class Scripted : public ProcessExchange {
 public:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override {
    last = std::string(mine);
    all->assign({last});
    all->insert(all->end(), others.begin(), others.end());
    return !ending;
  }
  std::vector<std::string> others;
  std::string last;
  bool ending = false;
};

Introduction Process(const std::string& version, std::vector<std::string> gpus,
                     const std::string& host = "h") {
  return {std::nullopt, version, host, std::move(gpus), 90};
}

TEST(Agreement, AnIntroductionSurvivesARoundTrip) {
  Scripted exchange;
  Introduction mine = Process("2.28.9", {"a", "b"}, "0123");
  mine.error = OpenError{OpenError::Kind::kBadInput, "text", "hint", 3};
  std::vector<Introduction> all;
  ASSERT_TRUE(Introduce(&exchange, mine, &all));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].gpu_ids, mine.gpu_ids);
  EXPECT_EQ(all[0].compute_capability, 90);
  EXPECT_EQ(all[0].error->text, "text");
  EXPECT_EQ(all[0].error->kind, OpenError::Kind::kBadInput);
  EXPECT_EQ(all[0].error->rank, 3);
  exchange.others = {"damaged"};
  EXPECT_FALSE(Introduce(&exchange, mine, &all));
}

World WorldOf(int processes, int ranks_per_gpu = 1, int emulated_nodes = 0) {
  World world;
  world.processes = processes;
  world.ranks_per_gpu = ranks_per_gpu;
  world.emulated_nodes = emulated_nodes;
  return world;
}

TEST(Agreement, TheFirstProblemKeepsAllFromConnecting) {
  const World two = WorldOf(2);
  EXPECT_FALSE(FindOpenError({Process("2.28.9", {"a"}), Process("2.28.9", {"b"})}, two));
  Introduction broken = Process("", {});
  broken.error = OpenError{OpenError::Kind::kCannotRun, "no GPU", "", 1};
  EXPECT_EQ(FindOpenError({Process("2.28.9", {"a"}), broken}, two)->text, "no GPU");
  const auto mixed =
      FindOpenError({Process("2.28.9", {"a", "b"}), Process("2.30.7", {"c", "d"})}, two);
  EXPECT_EQ(mixed->text, "rank 0 has NCCL 2.28.9 and rank 2 NCCL 2.30.7");
  EXPECT_EQ(mixed->rank, 2);
  const auto shared =
      FindOpenError({Process("2.28.9", {"a", "b"}), Process("2.28.9", {"b", "c"})}, two);
  EXPECT_EQ(shared->text, "ranks 1 and 2 are on the same GPU");
}

TEST(Agreement, RanksShareAGpuIfTheRunAndNcclAllowIt) {
  const auto found = [](const std::string& version, const std::string& gpus, const World& world) {
    std::vector<Introduction> all;
    for (const char gpu : gpus) all.push_back(Process(version, {std::string(1, gpu)}));
    const auto error = FindOpenError(all, world);
    return error ? error->text : "";
  };
  EXPECT_EQ(found("2.28.9", "aabb", WorldOf(4, 2, 4)), "");
  EXPECT_EQ(found("2.31.2", "aabb", WorldOf(4, 2, 2)), "");
  EXPECT_EQ(found("2.28.9", "aabb", WorldOf(4, 2, 2)),
            "NCCL 2.28.9 does not let ranks of one node share a GPU");
  EXPECT_EQ(found("2.28.9", "aaab", WorldOf(4, 2, 4)),
            "rank 2 would be one too many on the GPU of rank 0: --ranks-per-gpu is 2");
}

TEST(Agreement, AHostIsKnownAgain) {
  EXPECT_EQ(HostHash(), HostHash());
  EXPECT_EQ(HostHash().size(), 16U);
}

TEST(Agreement, AllGetTheErrorOfOne) {
  Scripted exchange;
  EXPECT_FALSE(ShareFirstError(&exchange, std::nullopt));
  const StepError mine = {ErrorKind::kMemory, "does not fit", 2, false};
  const auto shared = ShareFirstError(&exchange, mine);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->kind, ErrorKind::kMemory);
  EXPECT_EQ(shared->rank, 2);
  // The part of another process.
  exchange.others = {exchange.last};
  EXPECT_EQ(ShareFirstError(&exchange, std::nullopt)->text, "does not fit");
  exchange.ending = true;
  EXPECT_EQ(ShareFirstError(&exchange, std::nullopt)->kind, ErrorKind::kDied);
}

using std::chrono::seconds;

TEST(Team, EachMemberDoesTheTaskInAThreadOfItsOwn) {
  Team team(3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> members = 0;
    ASSERT_TRUE(team.Run(
        [&](size_t member) {
          members += 1 << member;
          const std::lock_guard<std::mutex> lock(mutex);
          threads.insert(std::this_thread::get_id());
        },
        Team::Clock::now() + seconds(200)));
    ASSERT_EQ(members, 7);
  }
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0U);
}

TEST(Team, TheDeadlineNamesTheStuckMember) {
  std::atomic<bool> stop = false;
  Team team(3);
  const auto task = [&stop](size_t member) {
    while (member == 1 && !stop) std::this_thread::yield();
  };
  EXPECT_FALSE(team.Run(task, Team::Clock::now() + std::chrono::milliseconds(50)));
  EXPECT_FALSE(team.WaitIdle(std::chrono::milliseconds(10)));
  while (team.FirstBusy() == 0) std::this_thread::yield();  // it may not have begun
  EXPECT_EQ(team.FirstBusy(), 1U);
  stop = true;
  EXPECT_TRUE(team.WaitIdle(seconds(200)));
  EXPECT_EQ(team.FirstBusy(), 3U);
}

TEST(Team, HurryEndsARunLongBeforeItsDeadline) {
  std::atomic<bool> stop = false;
  Team team(2);
  const auto task = [&](size_t member) {
    if (member == 0) team.EndSoon();
    while (member == 1 && !stop) std::this_thread::yield();
  };
  const Team::Clock::time_point start = Team::Clock::now();
  EXPECT_FALSE(team.Run(task, start + seconds(600)));
  EXPECT_LT(Team::Clock::now() - start, seconds(100));
  stop = true;
  EXPECT_TRUE(team.WaitIdle(seconds(200)));
}

TEST(Team, AStuckThreadIsLeftToItself) {
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  const auto over = std::make_shared<std::atomic<bool>>(false);
  {
    Team team(2);
    const auto task = [stop, over](size_t member) {
      while (member == 1 && !*stop) std::this_thread::yield();
      if (member == 1) *over = true;
    };
    EXPECT_FALSE(team.Run(task, Team::Clock::now() + std::chrono::milliseconds(200)));
  }
  *stop = true;
  while (!*over) std::this_thread::yield();
}

Step StepOf(Collective collective, size_t bytes, Dtype dtype = Dtype::kFloat) {
  Step step;
  step.collective = collective;
  step.bytes = bytes;
  step.dtype = dtype;
  step.root = 1;
  return step;
}

CallLayout LaidOut(const Step& step, int ranks) {
  CallLayout layout;
  const auto error = LayOut(step, ranks, &layout);
  EXPECT_FALSE(error) << error->text;
  return layout;
}

TEST(CallLayout, SizesAreTotalsAsTheTunerCountsThem) {
  struct Wanted {
    Collective collective;
    size_t count, send, receive;
  };
  const Wanted all[] = {
      {Collective::kBroadcast, 1024, 4096, 4096},    {Collective::kReduce, 1024, 4096, 4096},
      {Collective::kAllReduce, 1024, 4096, 4096},    {Collective::kSendRecv, 1024, 4096, 4096},
      {Collective::kAllGather, 256, 1024, 4096},     {Collective::kGather, 256, 1024, 4096},
      {Collective::kReduceScatter, 256, 4096, 1024}, {Collective::kScatter, 256, 4096, 1024},
      {Collective::kAllToAll, 256, 4096, 4096},
  };
  for (const Wanted& wanted : all) {
    const CallLayout layout = LaidOut(StepOf(wanted.collective, 4096), 4);
    EXPECT_EQ(layout.count, wanted.count);
    EXPECT_EQ(layout.send_bytes, wanted.send);
    EXPECT_EQ(layout.receive_bytes, wanted.receive);
    EXPECT_EQ(layout.bytes, 4096U);
  }
}

TEST(CallLayout, UnevenSizesAreRoundedTo16BytesARank) {
  const CallLayout layout = LaidOut(StepOf(Collective::kAllGather, 1024), 3);
  EXPECT_EQ(layout.send_bytes, 336U);
  EXPECT_EQ(layout.bytes, 1008U);
  // Sizes that divide evenly are unchanged, aligned or not; small ones are rounded down to whole
  // elements.
  EXPECT_EQ(LaidOut(StepOf(Collective::kAllGather, 72), 3).bytes, 72U);
  EXPECT_EQ(LaidOut(StepOf(Collective::kAllToAll, 32), 3).bytes, 24U);
  EXPECT_EQ(LaidOut(StepOf(Collective::kAllReduce, 1023), 3).bytes, 1020U);
}

TEST(CallLayout, RejectsImpossibleCalls) {
  CallLayout layout;
  Step step = StepOf(Collective::kAllGather, 8);
  EXPECT_EQ(LayOut(step, 4, &layout)->kind, ErrorKind::kUnsupported);
  EXPECT_EQ(LayOut(step, 4, &layout)->text, "8 bytes hold no element of 4 bytes for each rank");
  step = StepOf(Collective::kReduce, 4096);
  step.root = 4;
  EXPECT_EQ(LayOut(step, 4, &layout)->text, "there is no rank 4 to be the root");
}

std::string InWords(const std::vector<ResultPart>& parts) {
  std::string words;
  for (const ResultPart& part : parts) {
    words += std::to_string(part.source) + "[" + std::to_string(part.first) + "+" +
             std::to_string(part.elements) + "]@" + std::to_string(part.offset) + " ";
  }
  return words;
}

TEST(CallLayout, ListsTheResultPartsOfEachRank) {
  const auto result = [](Collective collective, int rank) {
    const Step step = StepOf(collective, 48);
    return InWords(ResultOf(step, LaidOut(step, 3), rank, 3));
  };
  EXPECT_EQ(result(Collective::kBroadcast, 0), "1[0+12]@0 ");
  EXPECT_EQ(result(Collective::kReduce, 0), "");
  EXPECT_EQ(result(Collective::kReduce, 1), "-1[0+12]@0 ");
  EXPECT_EQ(result(Collective::kAllReduce, 2), "-1[0+12]@0 ");
  EXPECT_EQ(result(Collective::kReduceScatter, 2), "-1[8+4]@0 ");
  EXPECT_EQ(result(Collective::kAllGather, 2), "0[0+4]@0 1[0+4]@16 2[0+4]@32 ");
  EXPECT_EQ(result(Collective::kSendRecv, 0), "2[0+12]@0 ");
  EXPECT_EQ(result(Collective::kAllToAll, 2), "0[8+4]@0 1[8+4]@16 2[8+4]@32 ");
  EXPECT_EQ(result(Collective::kGather, 2), "");
  EXPECT_EQ(result(Collective::kGather, 1), "0[0+4]@0 1[0+4]@16 2[0+4]@32 ");
  EXPECT_EQ(result(Collective::kScatter, 2), "1[8+4]@0 ");
}

constexpr NcclVersion kVersion = {2, 28, 9};

nccltune_tuner_table TableOf(float tree_ll, float ring_ll, float ring_simple) {
  nccltune_tuner_table table{};
  table.algorithms = 7;
  table.protocols = 3;
  for (auto& row : table.cost_us) {
    for (float& cost : row) cost = -1;
  }
  table.cost_us[abi::kTree][abi::kLl] = tree_ll;
  table.cost_us[abi::kRing][abi::kLl] = ring_ll;
  table.cost_us[abi::kRing][abi::kSimple] = ring_simple;
  return table;
}

nccltune_tuner_decision Forced(int algorithm, int protocol, int outcome) {
  nccltune_tuner_decision decision{};
  decision.source = NCCLTUNE_TUNER_BY_FORCE;
  decision.algorithm = algorithm;
  decision.protocol = protocol;
  decision.outcome = outcome;
  return decision;
}

Step ForcedStep(host::Combination combination) {
  Step step;
  step.choice = {Choice::Kind::kForced, combination, -1, 0};
  return step;
}

TEST(Observation, TheProfilerHasPriority) {
  Observation observation;
  observation.probed = ProbedCall{{abi::kRing, abi::kSimple}, 12};
  observation.decision = Forced(abi::kTree, abi::kLl, NCCLTUNE_TUNER_APPLIED);
  observation.decision->chunk_bytes = 4096;
  const AppliedChoice verdict = Judge(ForcedStep({abi::kTree, abi::kLl}), observation, kVersion);
  EXPECT_EQ(verdict.ran->combination, (host::Combination{abi::kRing, abi::kSimple}));
  EXPECT_EQ(verdict.ran->channels, 12);
  EXPECT_EQ(verdict.ran->chunk_bytes, 4096U);
  EXPECT_FALSE(verdict.applied);
}

TEST(Observation, FallsBackToTheDecisionAndThenToNcclsOwnPick) {
  Observation observation;
  observation.decision = Forced(abi::kRing, abi::kLl, NCCLTUNE_TUNER_APPLIED);
  observation.table = TableOf(5, 5, 9);
  AppliedChoice verdict = Judge(ForcedStep({abi::kRing, abi::kLl}), observation, kVersion);
  EXPECT_EQ(verdict.ran->combination, (host::Combination{abi::kRing, abi::kLl}));
  EXPECT_FALSE(verdict.ran->channels);
  EXPECT_TRUE(verdict.applied);
  // The default is forced too, without a combination. On equal costs 2.28 picks the first.
  observation.decision = Forced(-1, -1, NCCLTUNE_TUNER_APPLIED);
  EXPECT_EQ(Judge(Step(), observation, kVersion).ran->combination,
            (host::Combination{abi::kTree, abi::kLl}));
  EXPECT_EQ(Judge(Step(), observation, {2, 32, 3}).ran->combination,
            (host::Combination{abi::kRing, abi::kLl}));
}

TEST(Observation, AChoiceThatNcclCannotRunIsNotApplied) {
  Observation observation;
  const Step step = ForcedStep({abi::kNvls, abi::kSimple});
  observation.table = TableOf(5, 6, 9);
  observation.decision = Forced(-1, -1, NCCLTUNE_TUNER_UNUSABLE);
  EXPECT_FALSE(Judge(step, observation, kVersion).applied);
  EXPECT_EQ(Judge(step, observation, kVersion).ran->combination,
            (host::Combination{abi::kTree, abi::kLl}));
  observation.decision.reset();
  EXPECT_FALSE(Judge(step, observation, kVersion).applied);
  EXPECT_TRUE(Judge(Step(), observation, kVersion).applied);
  EXPECT_FALSE(Judge(Step(), Observation(), kVersion).ran);
}

TEST(Observation, WithoutADecisionTheProfilerDecidesWhetherItWasApplied) {
  Observation observation;
  observation.probed = ProbedCall{{abi::kRing, abi::kLl}, 4};
  Step step = ForcedStep({abi::kRing, abi::kLl});
  EXPECT_TRUE(Judge(step, observation, kVersion).applied);
  step.choice.channels = 2;
  EXPECT_FALSE(Judge(step, observation, kVersion).applied);
  step.choice.channels = 8;
  EXPECT_TRUE(Judge(step, observation, kVersion).applied);
  EXPECT_FALSE(Judge(ForcedStep({abi::kTree, abi::kLl}), observation, kVersion).applied);
}

// NCCL did not ask the plugin about this call then, but about an earlier one.
TEST(Observation, ADecisionOfAnotherSizeIsDropped) {
  std::string error;
  const auto control = TunerControl::Open(TUNER_PLUGIN, &error);
  ASSERT_NE(control, nullptr) << error;
  host::InitReport report;
  host::Failure failure;
  const auto tuner = host::TunerHost::Start(
      {.tuner = TUNER_PLUGIN,
       .nccl = kVersion,
       .platform = {.nodes = 2, .ranks = 4, .min_ranks_per_node = 2, .max_ranks_per_node = 2},
       .channels = std::nullopt},
      &report, &failure);
  ASSERT_NE(tuner, nullptr) << failure.text;
  Observer observer(*control);
  {
    const Observer::ObservationScope scope(observer, 0);
    tuner->Decide({.collective = abi::kAllReduce, .bytes = 1024});
  }
  EXPECT_TRUE(observer.Collect(Collective::kAllReduce, 1024, 0, 0).decision);
  EXPECT_FALSE(observer.Collect(Collective::kAllReduce, 2048, 0, 0).decision);
}

TEST(Observation, ATableRowHoldsWhatNcclCanRun) {
  const TableRow row = RowOf(TableOf(5.5, -1, 9), kVersion);
  ASSERT_EQ(row.costs.size(), 2U);
  EXPECT_EQ(row.costs[0].first, (host::Combination{abi::kTree, abi::kLl}));
  EXPECT_EQ(row.costs[0].second, 5.5);
  EXPECT_EQ(row.costs[1].first, (host::Combination{abi::kRing, abi::kSimple}));
  EXPECT_EQ(row.predicted, (host::Combination{abi::kTree, abi::kLl}));
}

}  // namespace
}  // namespace nccltune::bench
