// SPDX-License-Identifier: Apache-2.0
// The exported struct of every interface version, called as NCCL calls it.
#include "abi/tuner.h"
#include "testing.h"
#include "tuner/startup.h"
#include "tuner/support.h"

namespace nccltune::tuner {
namespace {

class VersionsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ForgetWarnings();
    TakeLog();
  }

  int version() const { return GetParam(); }
  bool has_table() const { return version() >= 3; }

  // Expects that no value from NCCL has changed.
  void ExpectUntouched(const Answer& answer, const CostTable& before) const {
    EXPECT_TRUE(answer.table.SameBytes(before));
    EXPECT_EQ(answer.channels, 0);
    EXPECT_EQ(answer.algorithm, -1);
    EXPECT_EQ(answer.protocol, -1);
  }

  ScopedVariable no_config_{"NCCLTUNE_CONFIG", nullptr};
  ScopedVariable no_nccl_config_{"NCCL_TUNER_CONFIG_FILE", nullptr};
  ScopedVariable no_algo_{"NCCL_ALGO", nullptr};
  ScopedVariable no_proto_{"NCCL_PROTO", nullptr};
};

class TableVersionsTest : public VersionsTest {};  // since v3 there is a cost table
class ChunkVersionsTest : public VersionsTest {};  // since v6 there is getChunkSize

Call AllReduce(uint64_t bytes) {
  Call call;
  call.collective = abi::kAllReduce;
  call.bytes = bytes;
  call.registered = 0;
  return call;
}

TEST_P(VersionsTest, WithoutAConfigurationNothingIsTouched) {
  const TestTuner tuner(version(), kScale);
  for (int collective = 0; collective < abi::kNumCollectives; ++collective) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}, uint64_t{1} << 36U}) {
      Call call = AllReduce(bytes);
      call.collective = collective;
      ExpectUntouched(tuner.Ask(call), {});
    }
  }
}

TEST_P(VersionsTest, WithoutAMatchNothingIsTouched) {
  const RuledTuner tuner(version(),
                         "allreduce,1024,2048,tree,ll,8,4,32\n"    // other sizes
                         "allreduce,0,9999,tree,ll,8,1,8\n"        // another scale
                         "allgather,0,9999,ring,ll,8,-1,-1\n"      // another collective
                         "allreduce,0,9999,tree,ll,8,-1,-1,7\n");  // other pipe ops
  ExpectUntouched(tuner.Ask(AllReduce(1023)), {});
  ExpectUntouched(tuner.Ask(AllReduce(2049)), {});
}

TEST_P(VersionsTest, AMatchChangesOneEntryAndTheChannelsOfItsRule) {
  for (const auto& [channels, passed] : {std::pair("-1", 0), std::pair("12", 12)}) {
    const RuledTuner tuner(version(), std::string("allreduce,1024,2048,tree,simple,") + channels +
                                          ",4,32,-1,-1,65536\n");
    for (const uint64_t bytes : {1024U, 2048U}) {
      const Answer answer = tuner.Ask(AllReduce(bytes));
      EXPECT_EQ(Chosen(answer, version()), (Pair{abi::kTree, abi::kSimple}));
      EXPECT_EQ(answer.channels, passed);
      CostTable expected;
      if (has_table()) expected.at(abi::kTree, abi::kSimple) = 0.0F;
      EXPECT_TRUE(answer.table.SameBytes(expected));
    }
    EXPECT_EQ(tuner.interface().has_chunk_size(), version() >= 6);
  }
}

TEST_P(VersionsTest, WithoutChannelsInTheRuleTheNumberFromNcclStays) {
  const RuledTuner tuner(version(), "allreduce,0,2048,ring,ll,-1,-1,-1\n");
  const Answer with = tuner.Ask(AllReduce(2048), {}, {.channels = 5});
  EXPECT_EQ(with.channels, 5);
  EXPECT_EQ(has_table() ? with.table.at(abi::kRing, abi::kLl) : 0.0F, 0.0F);
  EXPECT_EQ(with.algorithm, has_table() ? -1 : abi::kRing);
  EXPECT_EQ(tuner.Ask(AllReduce(2049), {}, {.channels = 5}).channels, 5) << "without a rule";
}

TEST_P(VersionsTest, ModelConstantsAreLeftAlone) {
  const RuledTuner tuner(version(), "allreduce,0,2048,ring,ll,12,-1,-1\n");
  tuner.Ask(AllReduce(1));
  EXPECT_EQ(tuner.constants().size(), version() < 5 ? 0U : version() < 7 ? 1152U : 1272U);
  EXPECT_TRUE(std::all_of(tuner.constants().begin(), tuner.constants().end(),
                          [](unsigned char byte) { return byte == kConstantsPattern; }));
}

TEST_P(TableVersionsTest, WhatNcclIgnoresIsNeverChosen) {
  const RuledTuner tuner(version(),
                         "allreduce,0,9999,nvls,simple,16,-1,-1\n"
                         "allreduce,0,9999,tree,ll128,-1,-1,-1\n");
  for (const float ignored :
       {abi::kIgnore, -1e30F, -1e-30F, std::numeric_limits<float>::quiet_NaN()}) {
    CostTable table;
    table.at(abi::kNvls, abi::kSimple) = ignored;
    const Answer second = tuner.Ask(AllReduce(5), table);
    EXPECT_EQ(second.table.at(abi::kTree, abi::kLl128), 0.0F);
    EXPECT_EQ(second.channels, 0);  // the channels of the unusable row are not applied
    table.at(abi::kTree, abi::kLl128) = ignored;
    ExpectUntouched(tuner.Ask(AllReduce(5), table), table);
  }
}

TEST_P(TableVersionsTest, ATableOfSixRowsIsNotOverrun) {
  // NCCL 2.22 has no PAT. The memory after its six rows does not belong to the tuner.
  const RuledTuner tuner(version(), "allgather,0,9999,pat,simple,-1,-1,-1\n");
  Call call = AllReduce(1);
  call.collective = abi::kAllGather;
  EXPECT_TRUE(tuner.Ask(call, {}, {.algorithms = 6}).table.SameBytes(CostTable()));
}

TEST_P(TableVersionsTest, APairWithAPredictedTimeOfZeroCanBeChosen) {
  const RuledTuner tuner(version(), "allreduce,0,9999,tree,ll128,6,-1,-1\n");
  CostTable table;
  table.at(abi::kTree, abi::kLl128) = 0.0F;
  const Answer answer = tuner.Ask(AllReduce(5), table);
  EXPECT_TRUE(answer.table.SameBytes(table));
  EXPECT_EQ(answer.channels, 6);
}

TEST_P(VersionsTest, RegisteredBuffersCountWhereTheyArePassed) {
  const RuledTuner tuner(version(), "allreduce,0,9999,ring,ll,-1,-1,-1,-1,1\n");
  Call call = AllReduce(5);
  EXPECT_EQ(Chosen(tuner.Ask(call), version()), Pair{});
  call.registered = 1;
  const Pair expected = version() >= 4 ? Pair{abi::kRing, abi::kLl} : Pair{};
  EXPECT_EQ(Chosen(tuner.Ask(call), version()), expected);
}

TEST_P(VersionsTest, StrangeCallsAreLeftToNccl) {
  const RuledTuner tuner(version(), "allreduce,0,18446744073709551615,ring,ll,4,-1,-1\n");
  for (const int collective : {-1, 5, 14, 1000}) {
    Call call = AllReduce(5);
    call.collective = collective;
    ExpectUntouched(tuner.Ask(call), {});
  }
  EXPECT_EQ(Chosen(tuner.Ask(AllReduce(std::numeric_limits<uint64_t>::max())), version()),
            (Pair{abi::kRing, abi::kLl}));
}

TEST_P(TableVersionsTest, WithoutATableNothingIsChosen) {
  const RuledTuner tuner(version(), "allreduce,0,9999,ring,ll,4,-1,-1\n");
  EXPECT_EQ(tuner.Ask(AllReduce(0), {}, {.has_table = false}).channels, 0);
}

TEST_P(VersionsTest, ANullContextIsLeftToNccl) {
  // The state after an init that ran out of memory.
  const TestTuner tuner(version(), kScale);
  ExpectUntouched(tuner.Ask(AllReduce(0), {}, {.has_context = false}), {});
  EXPECT_EQ(tuner.interface().Finalize(nullptr), abi::kSuccess);
}

TEST_P(ChunkVersionsTest, ChunkSizesAreLeftAlone) {
  const TestTuner tuner(version(), kScale);
  ASSERT_TRUE(tuner.interface().has_chunk_size());
  for (const size_t proposed : {size_t{0}, size_t{512}, size_t{1} << 22U}) {
    EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kSimple, proposed), proposed);
    EXPECT_EQ(tuner.AskChunk(99, -1, 7, proposed), proposed);
  }
}

// Returns the chunk size after a getCollInfo call for this many bytes.
size_t ChunkFor(const TestTuner& tuner, uint64_t bytes, int algorithm, int protocol) {
  tuner.Ask(AllReduce(bytes));
  return tuner.AskChunk(abi::kAllReduce, algorithm, protocol, 8192);
}

TEST_P(ChunkVersionsTest, TheRuleOfTheCallGivesTheChunkSize) {
  const RuledTuner tuner(version(),
                         "allreduce,0,999,tree,simple,-1,-1,-1\n"
                         "allreduce,1000,1999,tree,simple,-1,-1,-1,-1,-1,65536\n"
                         "allreduce,2000,2999,tree,simple,-1,-1,-1,-1,-1,4096\n"
                         "allreduce,3000,3999,ring,simple,-1,-1,-1,-1,-1,65536\n"
                         "broadcast,0,9999,ring,simple,-1,-1,-1,-1,-1,32768\n");
  // NCCL passes the share of a channel. Only getCollInfo knows the size of the call.
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 8192U);
  EXPECT_EQ(ChunkFor(tuner, 1000, abi::kTree, abi::kSimple), 65536U);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 16384), 65536U);  // mid, high
  EXPECT_EQ(ChunkFor(tuner, 2999, abi::kTree, abi::kSimple), 4096U);
  EXPECT_EQ(ChunkFor(tuner, 3500, abi::kRing, abi::kSimple), 65536U);
  // After a rule with a chunk size: a rule without one, and no rule, keep NCCL's value.
  EXPECT_EQ(ChunkFor(tuner, 999, abi::kTree, abi::kSimple), 8192U);
  ChunkFor(tuner, 1000, abi::kTree, abi::kSimple);
  EXPECT_EQ(ChunkFor(tuner, 5000, abi::kTree, abi::kSimple), 8192U);
  // NCCL runs another pair or collective than the rule's: the size does not apply.
  EXPECT_EQ(ChunkFor(tuner, 1500, abi::kRing, abi::kSimple), 8192U);
  EXPECT_EQ(ChunkFor(tuner, 1500, abi::kTree, abi::kLl), 8192U);
  EXPECT_EQ(ChunkFor(tuner, 1500, -1, -1), 8192U);
  EXPECT_EQ(ChunkFor(tuner, 1500, 256, 512), 8192U);
  EXPECT_EQ(tuner.AskChunk(abi::kBroadcast, abi::kTree, abi::kSimple, 8192), 8192U);
  EXPECT_EQ(tuner.AskChunk(5, abi::kTree, abi::kSimple, 8192), 8192U);
  EXPECT_EQ(tuner.AskChunk(-1, abi::kTree, abi::kSimple, 8192), 8192U);
  // Without a context, as after an init without memory, NCCL decides everything.
  size_t chunk = 8192;
  host::ChunkCall call;
  call.collective = abi::kAllReduce;
  call.combination = {abi::kTree, abi::kSimple};
  call.chunk_bytes = &chunk;
  EXPECT_EQ(tuner.interface().GetChunkSize(nullptr, call), abi::kSuccess);
  EXPECT_EQ(chunk, 8192U);
}

TEST_P(ChunkVersionsTest, AChunkSizeGoesWithARowThatNcclCanRun) {
  const RuledTuner tuner(version(),
                         "allreduce,0,999,nvls,simple,-1,-1,-1,-1,-1,4096\n"
                         "allreduce,0,999,tree,simple,-1,-1,-1,-1,-1,65536\n");
  CostTable table;
  table.at(abi::kNvls, abi::kSimple) = abi::kIgnore;
  tuner.Ask(AllReduce(5), table);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kNvls, abi::kSimple, 8192), 8192U);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 65536U);
  // With NVLS a larger size than NCCL's is not safe.
  const RuledTuner nvls(version(), "allreduce,0,999,nvls,simple,-1,-1,-1,-1,-1,65536\n");
  nvls.Ask(AllReduce(5));
  EXPECT_EQ(nvls.AskChunk(abi::kAllReduce, abi::kNvls, abi::kSimple, 32768), 32768U);
  EXPECT_EQ(nvls.AskChunk(abi::kAllReduce, abi::kNvls, abi::kSimple, 131072), 65536U);
}

TEST_P(ChunkVersionsTest, ConditionsOfARowHoldForItsChunkSize) {
  const RuledTuner tuner(version(),
                         "allreduce,0,999,tree,simple,-1,-1,-1,2,-1,4096\n"
                         "allreduce,0,999,tree,simple,-1,-1,-1,-1,1,2048\n"
                         "allreduce,0,999,tree,simple,-1,-1,-1\n");
  Call call = AllReduce(5);
  tuner.Ask(call);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 8192U);
  call.registered = 1;
  tuner.Ask(call);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 2048U);
  call.pipe_ops = 2;
  tuner.Ask(call);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 4096U);
}

TEST_P(ChunkVersionsTest, CommunicatorsDoNotShareTheirChunkSizes) {
  const ScopedConfig config("allreduce,0,999,tree,simple,-1,-1,-1,-1,-1,65536\n");
  const TestTuner one(version(), kScale);
  const TestTuner other(version(), kScale);
  one.Ask(AllReduce(5));
  other.Ask(AllReduce(5000));
  EXPECT_EQ(one.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 65536U);
  EXPECT_EQ(other.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 8192), 8192U);
}

TEST_P(ChunkVersionsTest, WithoutAPlaceForTheChunkSizeNothingIsWritten) {
  const RuledTuner tuner(version(), "allreduce,0,9999,ring,simple,-1,-1,-1,-1,-1,65536\n");
  tuner.Ask(AllReduce(5));
  host::ChunkCall call;
  call.collective = abi::kAllReduce;
  call.combination = {abi::kRing, abi::kSimple};
  call.chunk_bytes = nullptr;
  EXPECT_EQ(tuner.interface().GetChunkSize(tuner.context(), call), abi::kSuccess);
}

TEST_P(VersionsTest, WorksWithoutALogger) {
  const ScopedConfig config("nonsense\nallreduce,0,9999,ring,ll,-1,-1,-1\n");
  const TestTuner tuner(version(), kScale, /*with_log=*/false);
  EXPECT_EQ(Chosen(tuner.Ask(AllReduce(5)), version()), (Pair{abi::kRing, abi::kLl}));
  EXPECT_TRUE(TakeLog().empty());
}

TEST_P(VersionsTest, CollectivesAreNotLogged) {
  const RuledTuner tuner(version(), "allreduce,0,9999,ring,ll,-1,-1,-1,-1,-1,2048\n");
  EXPECT_EQ(TakeLog().size(), 1U);
  tuner.Ask(AllReduce(5));
  tuner.Ask(AllReduce(50000));
  if (version() >= 6) tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kLl, 4096);
  EXPECT_TRUE(TakeLog().empty());
}

TEST_P(VersionsTest, CommunicatorsDoNotShareTheirRules) {
  const ScopedConfig config(
      "allreduce,0,9999,ring,ll,-1,4,32\n"
      "allreduce,0,9999,tree,ll,-1,1,8\n");
  const TestTuner large(version(), {4, 32});
  const TestTuner small(version(), {1, 8});
  EXPECT_EQ(Chosen(large.Ask(AllReduce(5)), version()), (Pair{abi::kRing, abi::kLl}));
  EXPECT_EQ(Chosen(small.Ask(AllReduce(5)), version()), (Pair{abi::kTree, abi::kLl}));
}

INSTANTIATE_TEST_SUITE_P(Tuner, VersionsTest, ::testing::ValuesIn(kVersions), NameOfVersion);
INSTANTIATE_TEST_SUITE_P(Tuner, TableVersionsTest, ::testing::Range(3, 8), NameOfVersion);
INSTANTIATE_TEST_SUITE_P(Tuner, ChunkVersionsTest, ::testing::Range(6, 8), NameOfVersion);

TEST(TunerV2, KeepsToWhatNccl221CanRun) {
  const RuledTuner tuner(
      2,
      "allreduce,0,9999,nvls,simple,-1,-1,-1\n"  // four nodes: needs CollNet as well
      "allreduce,0,9999,tree,ll128,-1,-1,-1\n"   // not known to be safe here
      "allreduce,0,9999,tree,ll,-1,-1,-1\n"
      "broadcast,0,9999,tree,ll,-1,-1,-1\n");
  host::CollInfoCall call;
  int channels = 0;
  int algorithm = -1;
  int protocol = -1;
  call.collective = abi::kAllReduce;
  call.bytes = 5;
  call.channels = &channels;
  call.nvls_support = 1;
  call.algorithm = &algorithm;
  call.protocol = &protocol;
  tuner.interface().GetCollInfo(tuner.context(), call);
  EXPECT_EQ((Pair{algorithm, protocol}), (Pair{abi::kTree, abi::kLl}));
  algorithm = protocol = -1;
  call.collective = abi::kBroadcast;
  tuner.interface().GetCollInfo(tuner.context(), call);
  EXPECT_EQ((Pair{algorithm, protocol}), Pair{});
}

TEST(TunerV2, EnvironmentFiltersBeatTheRules) {
  const ScopedConfig config("allreduce,0,9999,tree,ll,-1,-1,-1\n");
  for (const char* variable : {"NCCL_ALGO", "NCCL_PROTO"}) {
    const ScopedVariable filter(variable, "Ring");
    TakeLog();
    const TestTuner tuner(2, kScale);
    EXPECT_EQ(Chosen(tuner.Ask(AllReduce(5)), 2), Pair{});
    EXPECT_TRUE(Has(TakeLog().back(), "no rule is used: NCCL_ALGO or NCCL_PROTO is set"));
    const TestTuner with_table(3, kScale);  // there NCCL filters the table itself
    EXPECT_EQ(Chosen(with_table.Ask(AllReduce(5)), 3), (Pair{abi::kTree, abi::kLl}));
    EXPECT_FALSE(Has(TakeLog().back(), "no rule is used"));
  }
}

}  // namespace
}  // namespace nccltune::tuner
