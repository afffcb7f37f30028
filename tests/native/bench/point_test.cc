// SPDX-License-Identifier: Apache-2.0
#include "bench/answer.h"
#include "bench/step.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

StepResult Timed(std::vector<RankTiming> timings) {
  StepResult result;
  result.timings = std::move(timings);
  return result;
}

StepResult Failed(ErrorKind kind, bool fatal) {
  StepResult result;
  result.error = StepError{kind, "text", 1, fatal};
  return result;
}

TEST(Point, TheSlowestRankCountsAndAllAreKept) {
  std::vector<StepResult> results = {Timed({{1, 20, 25, 0}, {0, 10, 11, 0}}),
                                     Timed({{2, 15, 30, 0}})};
  results[0].ran = ExecutedChoice{{abi::kTree, abi::kLl}, 2, std::nullopt};
  results[1].ran = ExecutedChoice{{abi::kRing, abi::kLl}, 2, std::nullopt};
  const Point point = CombineResults(Step(), results, 3);
  EXPECT_EQ(point.time_us, 20);
  EXPECT_EQ(point.times_us, (std::vector<double>{10, 20, 15}));
  EXPECT_EQ(point.host_us, 30);
  EXPECT_EQ(point.wrong, 0);
  EXPECT_EQ(point.ran, results[0].ran);
  EXPECT_TRUE(point.applied);
  EXPECT_FALSE(point.error);
}

TEST(Point, OfLoadsTheOneThatIsSlowedDownMostCounts) {
  const Point point = CombineResults(
      Step(), {Timed({{0, 10, 12, 0, 100.0, 150.0}, {1, 10, 12, 0, 10.0, 20.0}})}, 2);
  EXPECT_EQ(point.load_alone_us, 10.0);
  EXPECT_EQ(point.load_us, 20.0);
  const std::string answer = json::Write(PointAnswer(json::Value(), point, "nccl"));
  EXPECT_NE(answer.find(R"("load_alone_us":10.0,"load_us":20.0)"), std::string::npos) << answer;
}

TEST(Point, AValueThatOneRankLacksIsAbsent) {
  const Point point = CombineResults(
      Step(), {Timed({{0, 10, std::nullopt, 0}}), Timed({{1, 10, 12, std::nullopt}})}, 2);
  EXPECT_FALSE(point.host_us);
  EXPECT_FALSE(point.wrong);
}

TEST(Point, AChoiceIsAppliedIfItIsEverywhere) {
  std::vector<StepResult> results = {Timed({{0, 1, {}, {}}}), Timed({{1, 1, {}, {}}})};
  results[1].applied = false;
  EXPECT_FALSE(CombineResults(Step(), results, 2).applied);
}

TEST(Point, WrongElementsAreAddedUpAndAnError) {
  const Point point = CombineResults(Step(), {Timed({{0, 10, 1, 3}}), Timed({{1, 10, 1, 4}})}, 2);
  EXPECT_EQ(point.wrong, 7);
  ASSERT_TRUE(point.error);
  EXPECT_EQ(point.error->kind, ErrorKind::kWrong);
  EXPECT_FALSE(point.error->fatal);
}

TEST(Point, TheMostSevereErrorIsReported) {
  const StepResult good = Timed({{0, 1, {}, {}}});
  const auto kind = [](const std::vector<StepResult>& results) {
    return CombineResults(Step(), results, 3).error->kind;
  };
  EXPECT_EQ(kind({good, Failed(ErrorKind::kWrong, false), Failed(ErrorKind::kMemory, false)}),
            ErrorKind::kMemory);
  EXPECT_EQ(kind({Failed(ErrorKind::kMemory, false), Failed(ErrorKind::kNccl, true), good}),
            ErrorKind::kNccl);
  EXPECT_EQ(kind({Failed(ErrorKind::kCuda, true), Failed(ErrorKind::kTimeout, true), good}),
            ErrorKind::kCuda);
}

TEST(Point, AMissingTimingIsNoTiming) {
  for (const StepResult& other :
       {StepResult(), Timed({{0, 1, {}, {}}}), Timed({{7, 1, {}, {}}}), Timed({{1, 0, {}, {}}}),
        Timed({{1, std::numeric_limits<double>::quiet_NaN(), {}, {}}}), Timed({{1, -1, {}, {}}})}) {
    const Point point = CombineResults(Step(), {Timed({{0, 10, {}, {}}}), other}, 2);
    ASSERT_TRUE(point.error);
    EXPECT_EQ(point.error->text, "no timing came from rank 1");
    EXPECT_TRUE(point.error->fatal);
  }
}

TEST(Answer, APointIsWrittenAsDocumented) {
  Step step;
  step.bytes = 1024;
  step.iterations = 20;
  step.round = 3;
  step.repeat = 1;
  Point point = CombineResults(step, {Timed({{0, 68.123456, 70.25, 0}, {1, 68, 70, 0}})}, 2);
  point.ran = ExecutedChoice{{abi::kTree, abi::kLl}, 1, std::nullopt};
  point.seen = TunerInputs{2, std::nullopt};
  EXPECT_EQ(
      json::Write(PointAnswer(json::Value(1), point, "nccl")),
      R"({"op":"point","id":1,"bytes":1024,"choice":"default","ran":{"algorithm":"tree",)"
      R"("protocol":"ll","channels":1},"seen":{"pipe_ops":2,"registered":null},"applied":true,"round":3,"repeat":1,"iterations":20,)"
      R"("time_us":68.1235,"times_us":[68.1235,68.0],"host_us":70.25,"wrong":0,)"
      R"("source":"nccl"})");
  point.error = StepError{ErrorKind::kMemory, "too large", 1, false};
  point.ran.reset();
  point.seen.reset();
  point.wrong.reset();
  EXPECT_EQ(json::Write(PointAnswer(json::Value("x"), point, "nccl")),
            R"({"op":"point","id":"x","bytes":1024,"choice":"default","ran":null,"applied":true,)"
            R"("round":3,"repeat":1,"iterations":20,"wrong":null,"error":{"kind":"memory",)"
            R"("text":"too large","rank":1},"source":"nccl"})");
}

TEST(Answer, KnownPartsOfWhatRanAreWritten) {
  Point point = CombineResults(Step(), {Timed({{0, 1, {}, {}}})}, 1);
  const auto ran = [&point] { return json::Write(*PointAnswer({}, point, "nccl").Find("ran")); };
  point.ran = ExecutedChoice{};
  EXPECT_EQ(ran(), "null");
  point.ran = ExecutedChoice{{}, 4, std::nullopt};
  EXPECT_EQ(ran(), R"({"algorithm":null,"protocol":null,"channels":4})");
  point.ran = ExecutedChoice{{abi::kRing, abi::kSimple}, std::nullopt, 4096};
  EXPECT_EQ(ran(),
            R"({"algorithm":"ring","protocol":"simple","channels":null,"chunk_bytes":4096})");
}

TEST(Answer, ATableIsWrittenAsDocumented) {
  SizedRow row{1024, {}};
  row.result.row.costs = {{{abi::kTree, abi::kLl}, 12.3}, {{abi::kRing, abi::kLl}, std::nullopt}};
  row.result.row.predicted = {abi::kTree, abi::kLl};
  SizedRow failed{2048, {}};
  failed.result.error = StepError{ErrorKind::kUnsupported, "no", -1, false};
  EXPECT_EQ(json::Write(TableAnswer(json::Value(2), {row, failed})),
            R"({"op":"table","id":2,"rows":[{"bytes":1024,"costs":{"tree/ll":12.3,"ring/ll":null},)"
            R"("predicted":{"algorithm":"tree","protocol":"ll"}},{"bytes":2048,"error":)"
            R"({"kind":"unsupported","text":"no","rank":null}}]})");
}

TEST(Answer, EveryKindOfErrorHasAName) {
  for (const ErrorKind kind :
       {ErrorKind::kWrong, ErrorKind::kTimeout, ErrorKind::kNccl, ErrorKind::kCuda,
        ErrorKind::kMemory, ErrorKind::kUnsupported, ErrorKind::kDied}) {
    EXPECT_NE(KindName(kind), "?");
  }
}

TEST(ErrorWords, ProcessesAreShort) {
  EXPECT_EQ(Processes({3}), "process 3");
  EXPECT_EQ(Processes({1, 2}), "processes 1, 2");
  EXPECT_EQ(Processes({1, 2, 3, 7, 9, 10, 11, 12}), "processes 1-3, 7, 9-12");
}

TEST(ErrorWords, AStepIsNamedWithItsChoice) {
  Step step;
  step.bytes = 4096;
  EXPECT_EQ(InWords(step), "allreduce of 4096 bytes with NCCL's default");
  step.choice.kind = Choice::Kind::kTuned;
  EXPECT_EQ(InWords(step), "allreduce of 4096 bytes with the rules' choice");
  step.choice = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, 2, 65536};
  EXPECT_EQ(InWords(step),
            "allreduce of 4096 bytes with tree/ll on 2 channels in chunks of 65536 bytes");
  step.collective = Collective::kSendRecv;
  EXPECT_EQ(InWords(step), "sendrecv of 4096 bytes");
}

TEST(ErrorWords, SecondsAreAsShortAsTheyCanBe) {
  EXPECT_EQ(InSeconds(std::chrono::milliseconds(400)), "0.4 s");
  EXPECT_EQ(InSeconds(std::chrono::minutes(2)), "120 s");
}

}  // namespace
}  // namespace nccltune::bench
