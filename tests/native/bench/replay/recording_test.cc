// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/recording.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "bench/support.h"

namespace nccltune::bench {
namespace {

constexpr const char* kRecorded =
    R"({"schema_version":1,"name":"lab","gpu":"G","gpus":4,"nodes":2,"nccl_version":"2.28.9"})";

std::string Sample(const std::string& members) {
  return R"({"schema_version":1,"study":"lab","collective":"allreduce","bytes":1024,)"
         R"("source":{"tool":"t","nccl_version":"2.30.7"},)" +
         members + "}\n";
}

std::string Default(double time_us, const std::string& members = "") {
  return Sample(R"("choice":"default","time_us":)" + std::to_string(time_us) +
                (members.empty() ? "" : "," + members));
}

class RecordingTest : public ::testing::Test {
 protected:
  std::unique_ptr<Recording> Open(std::optional<RecordedScale> scale = std::nullopt) {
    return Recording::Open(folder_.path(), scale, &error_, &hint_);
  }
  void ExpectError(const std::string& part) {
    EXPECT_EQ(Open(), nullptr);
    EXPECT_NE(error_.find(part), std::string::npos) << error_;
    EXPECT_FALSE(hint_.empty());
  }
  static double DrawnFrom(const Series* series, size_t bytes = 1024) {
    if (series == nullptr) return -1;
    Random random(1);
    return series->Draw(bytes, &random)->time_us;
  }
  static Step MakeStep() {
    Step step;
    step.bytes = 1024;
    return step;
  }

  ScopedFolder folder_;
  std::string error_;
  std::string hint_;
};

TEST_F(RecordingTest, AStudyIsRead) {
  folder_.Write("platform.json", kRecorded);
  folder_.Write("samples.jsonl",
                Default(10) + "\n" +
                    Sample(R"("choice":{"algorithm":"tree","protocol":"ll"},"time_us":7)") +
                    Sample(R"("choice":{"algorithm":"ring","protocol":"simple","channels":8,)"
                           R"("chunk_bytes":4096},"time_us":8,"ran":{"algorithm":"ring",)"
                           R"("protocol":"simple","channels":4},"wrong":0)"));
  const auto recording = Open();
  ASSERT_NE(recording, nullptr) << error_;
  EXPECT_EQ(recording->name(), "lab");
  EXPECT_EQ(recording->gpu(), "G");
  EXPECT_EQ(recording->scale(), (RecordedScale{2, 4}));
  EXPECT_EQ(recording->nccl_version(), (NcclVersion{2, 28, 9}));
  EXPECT_TRUE(recording->nvls());
  const Step step = MakeStep();
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 10);
  const Choice tree = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, -1, 0};
  EXPECT_EQ(DrawnFrom(recording->Find(step, tree)), 7);
  Choice ring = {Choice::Kind::kForced, {abi::kRing, abi::kSimple}, 8, 4096};
  Random random(1);
  const std::optional<Timing> timing = recording->Find(step, ring)->Draw(1024, &random);
  EXPECT_TRUE(timing->checked);
  EXPECT_EQ(timing->ran, (ExecutedChoice{{abi::kRing, abi::kSimple}, 4, std::nullopt}));
  ring.channels = -1;
  EXPECT_EQ(recording->Find(step, ring), nullptr) << "another number of channels is another choice";
  EXPECT_EQ(recording->combinations().at(Collective::kAllReduce),
            (std::vector<host::Combination>{{abi::kTree, abi::kLl}, {abi::kRing, abi::kSimple}}));
}

TEST_F(RecordingTest, PropertiesOfTheStepMustMatch) {
  folder_.Write("platform.json", kRecorded);
  folder_.Write(
      "samples.jsonl",
      Default(1) + Default(2, R"("dtype":"half")") + Default(3, R"("dtype":"half","redop":"max")") +
          Default(4, R"("in_place":true)") + Default(5, R"("registered":true)") +
          Default(6, R"("graph":true)") +
          R"({"collective":"reduce","bytes":1024,"choice":"default","time_us":7,"root":0})"
          "\n"
          R"({"collective":"broadcast","bytes":1024,"choice":"default","time_us":8,"root":-1})"
          "\n");
  const auto recording = Open();
  ASSERT_NE(recording, nullptr) << error_;
  Step step = MakeStep();
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 1) << "an unnamed type stands for any";
  step.dtype = Dtype::kHalf;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 2) << "the named type comes first";
  step.redop = Redop::kMax;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 3);
  step = MakeStep();
  step.in_place = true;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 4);
  step.registered = true;
  EXPECT_EQ(recording->Find(step, Choice()), nullptr);
  step.in_place = false;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 5);
  step = MakeStep();
  step.graph = true;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 6);
  step = MakeStep();
  step.collective = Collective::kReduce;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 7);
  step.root = 1;
  EXPECT_EQ(recording->Find(step, Choice()), nullptr);
  step.collective = Collective::kBroadcast;
  EXPECT_EQ(DrawnFrom(recording->Find(step, Choice())), 8);
  step.bytes = 2048;
  EXPECT_EQ(recording->Find(step, Choice()), nullptr);
}

TEST_F(RecordingTest, WrongResultsAndRunsUnderRulesAreNotReplayed) {
  folder_.Write("platform.json", kRecorded);
  folder_.Write("samples.jsonl",
                Default(10) + Default(99, R"("wrong":3)") +
                    Sample(R"("choice":"tuned","time_us":98)") +
                    Default(97, R"("dtype":"complex")") +
                    R"({"collective":"hypercube","bytes":8,"choice":"default","time_us":1})"
                    "\n"
                    R"({"collective":"allreduce","bytes":0,"choice":"default","time_us":1})"
                    "\n");
  const auto recording = Open();
  ASSERT_NE(recording, nullptr) << error_;
  ASSERT_EQ(recording->series().size(), 1U);
  Random random(1);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(recording->series()[0].second.Draw(1024, &random)->time_us, 10);
  }
}

TEST_F(RecordingTest, ALineThatAnInterruptionCutIsLeftOut) {
  folder_.Write("platform.json", kRecorded);
  folder_.Write("samples.jsonl", Default(10) + R"({"collective":"allre)");
  EXPECT_NE(Open(), nullptr) << error_;
  folder_.Write("samples.jsonl", R"({"collective":"allre)"
                                 "\n" +
                                     Default(10));
  ExpectError("samples.jsonl:1: is damaged");
}

TEST_F(RecordingTest, AnInvalidLineIsReported) {
  folder_.Write("platform.json", kRecorded);
  const std::string bad[] = {"[]\n",
                             "{}\n",
                             Sample(R"("choice":"default")"),
                             Sample(R"("choice":"default","time_us":0)"),
                             Sample(R"("choice":"default","time_us":"1")"),
                             Sample(R"("choice":"fastest","time_us":1)"),
                             Sample(R"("choice":{"algorithm":"tree"},"time_us":1)"),
                             Sample(R"("choice":{"algorithm":"oak","protocol":"ll"},"time_us":1)"),
                             Default(1, R"("in_place":1)"),
                             Default(1, R"("ranks":0)"),
                             Default(1, R"("ranks":1099511627776)"),
                             Default(1, R"("wrong":-1)"),
                             R"({"collective":"allreduce","choice":"default","time_us":1})"
                             "\n"};
  for (const std::string& line : bad) {
    folder_.Write("samples.jsonl", Default(1) + line);
    ExpectError("samples.jsonl:2: is damaged");
  }
  folder_.Write("samples.jsonl", R"({"schema_version":2,"what":"ever"})"
                                 "\n");
  ExpectError("samples.jsonl:1: was written by a newer nccltune");
}

TEST_F(RecordingTest, AnInvalidStudyIsReported) {
  ExpectError("samples.jsonl: cannot be read: No such file");
  folder_.Write("samples.jsonl", "");
  ExpectError("samples.jsonl: holds no timing");
  folder_.Write("samples.jsonl", Default(1));
  ExpectError("does not state the number of nodes and ranks");
  folder_.Write("platform.json", "{");
  ExpectError("platform.json: is damaged");
  folder_.Write("platform.json", R"({"schema_version":9})");
  ExpectError("platform.json: was written by a newer nccltune");
  EXPECT_EQ(Recording::Open("/no/such/study", std::nullopt, &error_, &hint_), nullptr);
  EXPECT_NE(error_.find("No such file or directory"), std::string::npos) << error_;
  EXPECT_EQ(Recording::Open(folder_.path() + "/platform.json", std::nullopt, &error_, &hint_),
            nullptr);
  EXPECT_NE(error_.find("is a file, not a study folder"), std::string::npos) << error_;
}

TEST_F(RecordingTest, WithoutPlatformTheSamplesAreUsed) {
  folder_.Write("samples.jsonl", Default(1, R"("nodes":1,"ranks":8)"));
  const auto recording = Open();
  ASSERT_NE(recording, nullptr) << error_;
  EXPECT_EQ(recording->scale(), (RecordedScale{1, 8}));
  EXPECT_EQ(recording->nccl_version(), (NcclVersion{2, 30, 7}));
  EXPECT_EQ(recording->name(), folder_.path().substr(folder_.path().rfind('/') + 1));
}

TEST_F(RecordingTest, OneScaleIsReplayed) {
  folder_.Write("samples.jsonl",
                Default(1, R"("nodes":1,"ranks":8)") + Default(2, R"("nodes":2,"ranks":16)"));
  ExpectError("was recorded at several scales: 1/8 2/16");
  const auto recording = Open(RecordedScale{2, 16});
  ASSERT_NE(recording, nullptr) << error_;
  EXPECT_EQ(DrawnFrom(recording->Find(MakeStep(), Choice())), 2);
  EXPECT_EQ(Open(RecordedScale{4, 32}), nullptr);
  EXPECT_NE(error_.find("was not recorded at 4/32 but at 1/8 2/16"), std::string::npos) << error_;
}

TEST_F(RecordingTest, PredictionsAreReadAndInterpolated) {
  folder_.Write("platform.json", kRecorded);
  folder_.Write("samples.jsonl", Default(1));
  const auto line = [](int bytes, const std::string& costs, const std::string& more = "") {
    return R"({"schema_version":1,"collective":"allreduce","bytes":)" + std::to_string(bytes) +
           R"(,"costs":{)" + costs + "}" + more + "}\n";
  };
  folder_.Write("tables.jsonl", line(1024, R"("tree/ll":10,"ring/ll":20)") +
                                    line(16384, R"("tree/ll":40,"ring/simple":5)") +
                                    line(1 << 20, R"("tree/ll":999)", R"(,"nodes":1,"ranks":2)"));
  const auto recording = Open();
  ASSERT_NE(recording, nullptr) << error_;
  const std::optional<Costs> exact = recording->FindCosts(Collective::kAllReduce, 1024);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->size(), 2U);
  const std::optional<Costs> between = recording->FindCosts(Collective::kAllReduce, 4096);
  ASSERT_TRUE(between);
  ASSERT_EQ(between->size(), 1U);
  EXPECT_EQ(between->front().first, (host::Combination{abi::kTree, abi::kLl}));
  EXPECT_NEAR(between->front().second, 20, 1e-9);
  EXPECT_FALSE(recording->FindCosts(Collective::kAllReduce, 1023));
  EXPECT_FALSE(recording->FindCosts(Collective::kAllReduce, 16385)) << "that is another scale";
  EXPECT_FALSE(recording->FindCosts(Collective::kAllGather, 1024));
  EXPECT_FALSE(recording->FindCosts(Collective::kBroadcast, 1024));

  for (const std::string& bad : {line(8, R"("oak/ll":1)"), line(8, R"("tree/ll":-1)"),
                                 line(8, R"("tree/ll":"1")"), line(0, ""), std::string("{}\n")}) {
    folder_.Write("tables.jsonl", bad);
    ExpectError("tables.jsonl:1: is damaged");
  }
}

Series SeriesOf(const std::map<size_t, std::vector<double>>& times) {
  Series series;
  for (const auto& [bytes, all] : times) {
    for (const double time : all) {
      Timing timing;
      timing.time_us = time;
      series.Add(bytes, timing);
    }
  }
  return series;
}

TEST(Series, ARecordedSizeDrawsItsTimingsUniformly) {
  const Series series = SeriesOf({{1024, {10, 11, 12, 50}}, {2048, {99}}});
  Random random(1);
  std::map<double, int> counts;
  constexpr int kDraws = 8000;
  for (int i = 0; i < kDraws; ++i) ++counts[series.Draw(1024, &random)->time_us];
  ASSERT_EQ(counts.size(), 4U);
  double chi_square = 0;
  for (const auto& [time, count] : counts) {
    chi_square += std::pow(count - kDraws / 4.0, 2) / (kDraws / 4.0);
  }
  EXPECT_LT(chi_square, 16.3);  // 3 degrees of freedom, p = 0.001
}

TEST(Series, BetweenSizesTheMediansAreInterpolatedInLogLog) {
  // The time grows from 10 to 40 us while the size grows by a factor of 16, so it is proportional
  // to the square root of the size.
  const Series series = SeriesOf({{1024, {10}}, {16384, {40}}});
  Random random(1);
  EXPECT_NEAR(series.Draw(4096, &random)->time_us, 20, 1e-9);
  EXPECT_NEAR(series.Draw(2048, &random)->time_us, 10 * std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(Between(1024, 1024, 10, 16384, 40), 10, 1e-12);
  EXPECT_NEAR(Between(16384, 1024, 10, 16384, 40), 40, 1e-12);
}

TEST(Series, BetweenSizesTheNearerOneGivesTheSpread) {
  const Series series = SeriesOf({{1000, {9, 10, 12}}, {100'000, {500, 1000, 3000}}});
  const auto ratios = [&series](size_t bytes, double median) {
    Random random(7);
    std::set<long> all;
    for (int i = 0; i < 200; ++i) {
      all.insert(std::lround(series.Draw(bytes, &random)->time_us / median * 1000));
    }
    return all;
  };
  EXPECT_EQ(ratios(4000, Between(4000, 1000, 10, 100'000, 1000)),
            (std::set<long>{900, 1000, 1200}));
  EXPECT_EQ(ratios(40'000, Between(40'000, 1000, 10, 100'000, 1000)),
            (std::set<long>{500, 1000, 3000}));
}

TEST(Series, NothingIsDrawnOutsideTheRecordedSizes) {
  const Series series = SeriesOf({{1024, {10}}, {4096, {20}}});
  Random random(1);
  EXPECT_FALSE(series.Draw(1023, &random));
  EXPECT_FALSE(series.Draw(4097, &random));
  EXPECT_TRUE(series.Covers(1024));
  EXPECT_TRUE(series.Covers(4096));
  EXPECT_FALSE(Series().Draw(1, &random));
}

TEST(Series, OneSeedGivesOneSequence) {
  const Series series = SeriesOf({{8, {1, 2, 3, 4, 5, 6, 7}}});
  const auto draws = [&series](uint64_t seed) {
    Random random(seed);
    std::vector<double> times;
    for (int i = 0; i < 20; ++i) times.push_back(series.Draw(8, &random)->time_us);
    return times;
  };
  EXPECT_EQ(draws(3), draws(3));
  EXPECT_NE(draws(3), draws(4));
}

TEST(Series, TheMedianIsTheMiddle) {
  EXPECT_EQ(MedianTime({{3, false, {}}, {1, false, {}}, {9, false, {}}}), 3);
  EXPECT_EQ(MedianTime({{3, false, {}}, {1, false, {}}, {9, false, {}}, {5, false, {}}}), 4);
}

}  // namespace
}  // namespace nccltune::bench
