// SPDX-License-Identifier: Apache-2.0
#include "bench/answer.h"
#include "bench/request.h"
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
  EXPECT_TRUE(Has(answer, R"("load_alone_us":10.0,"load_us":20.0)")) << answer;
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

constexpr int kRanks = 4;

BenchRequest Parsed(const std::string& line) {
  BenchRequest request;
  std::string error;
  EXPECT_TRUE(ParseRequest(line, kRanks, &request, &error)) << error;
  return request;
}

std::string ErrorOf(const std::string& line) {
  BenchRequest request;
  std::string error;
  EXPECT_FALSE(ParseRequest(line, kRanks, &request, &error)) << line;
  return error;
}

// Returns a measure request with additional or changed members.
std::string Measure(const std::string& members) {
  return R"({"op":"measure","collective":"allreduce","bytes":[1024],"choices":["default"])" +
         (members.empty() ? "" : "," + members) + "}";
}

// Returns a measure request of one byte with these choices.
std::string Choices(const std::string& choices) {
  return R"({"op":"measure","collective":"allreduce","bytes":[1],"choices":[)" + choices + "]}";
}

// Returns a measure request with these bytes.
std::string Bytes(const std::string& bytes) {
  return R"({"op":"measure","collective":"allreduce","bytes":)" + bytes +
         R"(,"choices":["default"]})";
}

TEST(BenchRequest, AbsentMembersAreAtTheirDefault) {
  const BenchRequest request = Parsed(Measure(""));
  EXPECT_EQ(request.kind, BenchRequest::Kind::kMeasure);
  EXPECT_TRUE(request.id.IsNull());
  EXPECT_TRUE(request.step == (Step{.choice = {}, .warmup = 2, .iterations = 20}));
  EXPECT_EQ(request.rounds, 1);
  EXPECT_EQ(request.first_round, 0);
  EXPECT_EQ(request.default_repeats, 1);
}

TEST(BenchRequest, EveryMemberIsRead) {
  const BenchRequest request = Parsed(
      R"({"op":"measure","id":"a","collective":"reduce","bytes":[1024,2048],)"
      R"("choices":["default","tuned",{"algorithm":"tree","protocol":"ll"},)"
      R"({"algorithm":"ring","protocol":"simple","channels":8,"chunk_bytes":4096}],)"
      R"("dtype":"bfloat16","redop":"max","root":3,"registered":true,)"
      R"("graph":true,"group_calls":4,"load":true,"rounds":4,"first_round":9,"default_repeats":2,)"
      R"("warmup":0,"iterations":3,"seed":7,"check":false,"timeout_s":1})");
  EXPECT_EQ(*request.id.AsString(), "a");
  EXPECT_TRUE(request.step == (Step{.collective = Collective::kReduce,
                                    .dtype = Dtype::kBfloat16,
                                    .redop = Redop::kMax,
                                    .root = 3,
                                    .registered = true,
                                    .graph = true,
                                    .group_calls = 4,
                                    .load = true,
                                    .choice = {},
                                    .iterations = 3,
                                    .check = false,
                                    .timeout_s = 1,
                                    .seed = 7}));
  EXPECT_EQ(request.bytes, (std::vector<size_t>{1024, 2048}));
  ASSERT_EQ(request.choices.size(), 4U);
  EXPECT_EQ(request.choices[0], Choice());
  EXPECT_EQ(request.choices[1].kind, Choice::Kind::kTuned);
  EXPECT_EQ(request.choices[2], (Choice{Choice::Kind::kForced, {abi::kTree, abi::kLl}, -1, 0}));
  EXPECT_EQ(request.choices[3],
            (Choice{Choice::Kind::kForced, {abi::kRing, abi::kSimple}, 8, 4096}));
  EXPECT_EQ(request.rounds, 4);
  EXPECT_EQ(request.first_round, 9);
  EXPECT_EQ(request.default_repeats, 2);
}

TEST(BenchRequest, WritingAChoiceIsTheInverseOfParsing) {
  const std::string choices[] = {
      R"("default")", R"("tuned")", R"({"algorithm":"nvls_tree","protocol":"simple"})",
      R"({"algorithm":"ring","protocol":"ll128","channels":2,"chunk_bytes":64})"};
  for (const std::string& choice : choices) {
    EXPECT_EQ(json::Write(ToJson(Parsed(Choices(choice)).choices[0])), choice);
  }
}

TEST(BenchRequest, TheOthersAreRead) {
  EXPECT_EQ(Parsed(R"({"op":"hello","id":5,"schema_version":1})").kind, BenchRequest::Kind::kHello);
  EXPECT_EQ(Parsed(R"({"op":"quit","id":null})").kind, BenchRequest::Kind::kQuit);
  const BenchRequest table =
      Parsed(R"({"op":"table","id":2,"collective":"allgather","bytes":[1,2],"registered":true,)"
             R"("group_calls":1024})");
  EXPECT_EQ(table.kind, BenchRequest::Kind::kTable);
  EXPECT_EQ(*table.id.AsInt(), 2);
  EXPECT_EQ(table.bytes.size(), 2U);
  EXPECT_TRUE(table.step.registered);
  EXPECT_EQ(table.step.group_calls, 1024);
}

TEST(BenchRequest, InvalidInputIsReported) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "not JSON"},
      {"[]", "a request is an object, not an array"},
      {"{}", "'op' is missing"},
      {R"({"op":7})", "'op' is missing"},
      {R"({"op":"measur"})", "'measur' is none of hello, measure, table, quit"},
      {R"({"op":"quit","id":1.5})", "'id' must be an integer or a string, not a number"},
      {R"({"op":"quit","id":")" + std::string(300, 'x') + R"("})", "'id' is too long"},
      {R"({"op":"hello"})", "'schema_version' is missing"},
      {R"({"op":"hello","schema_version":2})", "schema version 2 is not supported, only 1"},
      {R"({"op":"quit","now":true})", "'now' is not known here"},
      {Measure(R"("iteration":5)"), "'iteration' is not known here"},
      {Measure(R"("dtype":"Float")"), "did you mean 'float'?"},
      {Measure(R"("dtype":"")"), "'dtype': '' is none of"},
      {Measure(R"("redop":"mean")"), "'redop': 'mean' is none of sum prod max min avg"},
      {Measure(R"("root":4)"), "'root' must be from 0 to 3"},
      {Measure(R"("rounds":0)"), "'rounds' must be from 1"},
      {Measure(R"("warmup":-1)"), "'warmup' must be from 0"},
      {Measure(R"("iterations":0)"), "'iterations' must be from 1"},
      {Measure(R"("iterations":1.5)"), "'iterations' must be an integer, not a number"},
      {Measure(R"("check":1)"), "'check' must be a boolean, not an integer"},
      {Measure(R"("timeout_s":0)"), "'timeout_s' must be above 0 and at most 3600"},
      {Measure(R"("timeout_s":"30")"), "'timeout_s' must be a number, not a string"},
      {Measure(R"("seed":-1)"), "'seed' must be from 0"},
      {R"({"op":"measure","collective":"","bytes":[1],"choices":["default"]})",
       "'collective': '' is none of"},
      {R"({"op":"measure","collective":"allreduce","choices":["default"]})", "'bytes' is missing"},
      {Bytes("1"), "'bytes' must be an array, not an integer"},
      {Bytes("[]"), "'bytes' must hold from 1 to 4096"},
      {Bytes("[0]"), "'bytes' must hold integers from 1"},
      {Bytes("[8,4,8]"), "'bytes' holds 8 twice"},
      {R"({"op":"measure","collective":"allreduce","bytes":[1]})", "'choices' is missing"},
      {Choices(R"("fast")"), "'choices'[0]: 'fast' is neither default, nor tuned, nor an object"},
      {Choices(R"("tuned","tuned")"), "'choices'[1]: it is listed twice"},
      {Choices(R"(7)"), "'choices'[0]: expected an object, not an integer"},
      {Choices(R"({"algorithm":"tree"})"), "'choices'[0]: 'protocol' is missing"},
      {Choices(R"({"algorithm":"NVLSTree","protocol":"simple"})"), "did you mean 'nvls_tree'?"},
      {Choices(R"({"algorithm":"tree","protocol":"ll","channels":65})"),
       "'channels' must be from 1 to 64"},
      {R"({"op":"measure","collective":"sendrecv","bytes":[1],"choices":["default","tuned"]})",
       "NCCL asks no tuner about sendrecv: its only choice is default"},
      {R"({"op":"table","collective":"alltoall","bytes":[1]})", "it has no table"},
      {Measure(R"("default_repeats":1000001)"), "'default_repeats' must be from 1"},
  };
  for (const auto& [line, part] : cases) {
    const std::string error = ErrorOf(line);
    EXPECT_TRUE(Has(error, part)) << line << "\n" << error;
  }
}

TEST(BenchRequest, ARoundHasABound) {
  std::string bytes = "1";
  for (int i = 2; i <= 4; ++i) bytes += "," + std::to_string(i);
  const std::string line = R"({"op":"measure","collective":"allreduce","bytes":[)" + bytes +
                           R"(],"choices":["default"],"default_repeats":)";
  EXPECT_EQ(Parsed(line + "250000}").default_repeats, 250000);
  EXPECT_EQ(ErrorOf(line + "250001}"), "one round has more than 1000000 points");
}

TEST(BenchRequest, TheIdOfAnInvalidRequestIsReturned) {
  BenchRequest request;
  std::string error;
  EXPECT_FALSE(ParseRequest(R"({"op":"nope","id":12})", kRanks, &request, &error));
  EXPECT_EQ(*request.id.AsInt(), 12);
}

}  // namespace
}  // namespace nccltune::bench
