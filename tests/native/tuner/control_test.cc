// SPDX-License-Identifier: Apache-2.0
#include "tuner/control.h"
#include "abi/tuner.h"
#include "testing.h"
#include "tuner/control_state.h"
#include "tuner/support.h"

namespace nccltune::tuner {
namespace {

// The layout that other programs are built against.
static_assert(sizeof(nccltune_tuner_table) == 144);
static_assert(offsetof(nccltune_tuner_table, collective) == 32);
static_assert(offsetof(nccltune_tuner_table, cost_us) == 56);
static_assert(sizeof(nccltune_tuner_decision) == 88);
static_assert(offsetof(nccltune_tuner_decision, collective) == 48);
static_assert(offsetof(nccltune_tuner_decision, interface_version) == 84);

class ControlTest : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override {
    nccltune_tuner_release(NCCLTUNE_TUNER_ALL);
    nccltune_tuner_record(0);
  }

  int version() const { return GetParam(); }

  static Call MakeCall(uint64_t bytes, int collective = abi::kAllReduce) {
    Call call;
    call.collective = collective;
    call.bytes = bytes;
    call.registered = 0;
    return call;
  }

  static nccltune_tuner_decision LastDecision(int collective = abi::kAllReduce) {
    nccltune_tuner_decision decision{};
    EXPECT_EQ(nccltune_tuner_last_decision(collective, &decision), NCCLTUNE_TUNER_OK);
    return decision;
  }

  ScopedFile file_{"allreduce,0,9999,ring,ll,4,-1,-1\n"};
  ScopedVariable config_{"NCCLTUNE_CONFIG", file_.path().c_str()};
};

class TableControlTest : public ControlTest {};  // since v3 there is a cost table
class ChunkControlTest : public ControlTest {};  // since v6 there is getChunkSize

TEST_P(ControlTest, AForcedChoiceTakesThePlaceOfTheRule) {
  const TestTuner tuner(version(), kScale);
  ASSERT_EQ(nccltune_tuner_force(abi::kAllReduce, abi::kTree, abi::kSimple, 7, 0),
            NCCLTUNE_TUNER_OK);
  const Answer forced = tuner.Ask(MakeCall(100));
  EXPECT_EQ(Chosen(forced, version()), (Pair{abi::kTree, abi::kSimple}));
  EXPECT_EQ(forced.channels, 7);
  const nccltune_tuner_decision decision = LastDecision();
  EXPECT_EQ(decision.source, NCCLTUNE_TUNER_BY_FORCE);
  EXPECT_EQ(decision.outcome, NCCLTUNE_TUNER_APPLIED);
  EXPECT_EQ(decision.bytes, 100U);
  EXPECT_EQ(decision.algorithm, abi::kTree);
  EXPECT_EQ(decision.protocol, abi::kSimple);
  EXPECT_EQ(decision.channels, 7);
  EXPECT_EQ(decision.nodes, 4U);
  EXPECT_EQ(decision.ranks, 32U);
  EXPECT_EQ(decision.interface_version, version());
  EXPECT_EQ(decision.registered, version() >= 4 ? 0 : -1);

  ASSERT_EQ(nccltune_tuner_release(abi::kAllReduce), NCCLTUNE_TUNER_OK);
  const Answer released = tuner.Ask(MakeCall(100));
  EXPECT_EQ(Chosen(released, version()), (Pair{abi::kRing, abi::kLl}));
  EXPECT_EQ(released.channels, 4);
}

TEST_P(ControlTest, OtherCollectivesAreNotForced) {
  const TestTuner tuner(version(), kScale);
  ASSERT_EQ(nccltune_tuner_force(abi::kBroadcast, abi::kRing, abi::kSimple, -1, 0),
            NCCLTUNE_TUNER_OK);
  EXPECT_EQ(Chosen(tuner.Ask(MakeCall(5)), version()), (Pair{abi::kRing, abi::kLl}));
  EXPECT_EQ(Chosen(tuner.Ask(MakeCall(5, abi::kBroadcast)), version()),
            (Pair{abi::kRing, abi::kSimple}));
  ASSERT_EQ(nccltune_tuner_force(NCCLTUNE_TUNER_ALL, abi::kRing, abi::kSimple, -1, 0),
            NCCLTUNE_TUNER_OK);
  for (int collective = 0; collective < abi::kNumCollectives; ++collective) {
    EXPECT_EQ(Chosen(tuner.Ask(MakeCall(5, collective)), version()),
              (Pair{abi::kRing, abi::kSimple}));
  }
}

TEST_P(ControlTest, NcclsDefaultCanBeForced) {
  const TestTuner tuner(version(), kScale);
  ASSERT_EQ(nccltune_tuner_force(NCCLTUNE_TUNER_ALL, NCCLTUNE_TUNER_DEFAULT, NCCLTUNE_TUNER_DEFAULT,
                                 NCCLTUNE_TUNER_DEFAULT, 0),
            NCCLTUNE_TUNER_OK);
  const Answer answer = tuner.Ask(MakeCall(5));
  EXPECT_TRUE(answer.table.SameBytes({}));
  EXPECT_EQ(Chosen(answer, version()), Pair{});
  EXPECT_EQ(answer.channels, 0);
  EXPECT_EQ(LastDecision().source, NCCLTUNE_TUNER_BY_FORCE);
  EXPECT_EQ(LastDecision().algorithm, -1);
}

TEST_P(ControlTest, AnUnusableChoiceIsReportedAndLeftToNccl) {
  const TestTuner tuner(version(), kScale);
  ASSERT_EQ(nccltune_tuner_force(abi::kAllReduce, abi::kPat, abi::kSimple, 3, 0),
            NCCLTUNE_TUNER_OK);
  CostTable table;
  table.at(abi::kPat, abi::kSimple) = abi::kIgnore;
  const Answer answer = tuner.Ask(MakeCall(5), table);
  EXPECT_TRUE(answer.table.SameBytes(table));
  EXPECT_EQ(answer.channels, 0);
  EXPECT_EQ(answer.algorithm, -1);
  const nccltune_tuner_decision decision = LastDecision();
  EXPECT_EQ(decision.source, NCCLTUNE_TUNER_BY_FORCE);
  EXPECT_EQ(decision.outcome, NCCLTUNE_TUNER_UNUSABLE);
  EXPECT_EQ(decision.algorithm, -1);
  EXPECT_EQ(decision.channels, -1);
}

TEST_P(ControlTest, ChannelsAreNotForcedWhereCollnetMayRun) {
  const TestTuner tuner(version(), kScale);
  nccltune_tuner_force(abi::kAllReduce, abi::kCollnetChain, abi::kSimple, 8, 0);
  const Answer collnet = tuner.Ask(MakeCall(5));
  EXPECT_EQ(Chosen(collnet, version()), (Pair{abi::kCollnetChain, abi::kSimple}));
  EXPECT_EQ(collnet.channels, 0);
  EXPECT_EQ(LastDecision().outcome, NCCLTUNE_TUNER_CHANNELS_REFUSED);
  // Only the number of channels is forced: NCCL picks the algorithm, and the table contains
  // CollNet.
  nccltune_tuner_force(abi::kAllReduce, -1, -1, 8, 0);
  EXPECT_EQ(tuner.Ask(MakeCall(5)).channels, 0);
  if (version() == 2) return;
  CostTable without;
  for (int p = 0; p < abi::kNumProtocols; ++p) {
    without.at(abi::kCollnetDirect, p) = without.at(abi::kCollnetChain, p) = abi::kIgnore;
  }
  EXPECT_EQ(tuner.Ask(MakeCall(5), without).channels, 8);
}

TEST_P(ControlTest, RecordsWhatTheRulesDecide) {
  const TestTuner tuner(version(), kScale);
  ASSERT_EQ(nccltune_tuner_record(1), NCCLTUNE_TUNER_OK);
  tuner.Ask(MakeCall(7));
  const nccltune_tuner_decision first = LastDecision();
  EXPECT_EQ(first.source, NCCLTUNE_TUNER_BY_RULE);
  EXPECT_EQ(first.line, 1U);
  EXPECT_EQ(first.algorithm, abi::kRing);
  EXPECT_EQ(first.protocol, abi::kLl);
  EXPECT_EQ(first.channels, 4);
  tuner.Ask(MakeCall(20000));
  const nccltune_tuner_decision second = LastDecision();
  EXPECT_EQ(second.sequence, first.sequence + 1);
  EXPECT_EQ(second.source, NCCLTUNE_TUNER_BY_NCCL);
  EXPECT_EQ(second.line, 0U);
  EXPECT_EQ(second.algorithm, -1);
  EXPECT_EQ(second.channels, -1);
}

TEST_P(ControlTest, EachDeviceHasItsOwnNewestDecision) {
  const ScopedLibrary cuda(CUDA_DOUBLE);
  auto* const set_device = cuda.Find<void(int)>("set_current_device");
  ASSERT_NE(set_device, nullptr);
  const auto on_device = [&](int device) {
    set_device(device);
    return std::make_unique<TestTuner>(version(), kScale);
  };
  const auto bytes_on = [](int device) {
    nccltune_tuner_decision decision{};
    EXPECT_EQ(nccltune_tuner_device_decision(device, abi::kAllReduce, &decision),
              NCCLTUNE_TUNER_OK);
    return decision.bytes;
  };
  const auto second = on_device(2);
  const auto last = on_device(63);
  const auto unknown = on_device(-1);
  nccltune_tuner_record(1);
  second->Ask(MakeCall(7));
  last->Ask(MakeCall(20000));
  EXPECT_EQ(bytes_on(2), 7U);
  EXPECT_EQ(bytes_on(63), 20000U);
  EXPECT_EQ(LastDecision().bytes, 20000U);
  if (version() >= 6) {
    second->AskChunk(abi::kAllReduce, abi::kRing, abi::kLl, 1024);
    EXPECT_EQ(LastDecision().chunk_bytes, 0U);
  }
  unknown->Ask(MakeCall(9));
  EXPECT_EQ(bytes_on(2), 9U);
  EXPECT_EQ(LastDecision().bytes, 9U);
}

TEST_P(TableControlTest, RecordsTheTableAsNcclHandedItOver) {
  const TestTuner tuner(version(), kScale);
  nccltune_tuner_table table{};
  ASSERT_EQ(nccltune_tuner_record(1), NCCLTUNE_TUNER_OK);
  CostTable offered;
  offered.at(abi::kNvls, abi::kLl) = abi::kIgnore;
  tuner.Ask(MakeCall(7), offered);
  const uint64_t sequence = LastDecision().sequence;
  ASSERT_EQ(nccltune_tuner_last_table(abi::kAllReduce, 7, &table), NCCLTUNE_TUNER_OK);
  EXPECT_EQ(table.sequence, sequence);
  EXPECT_EQ(table.collective, abi::kAllReduce);
  EXPECT_EQ(table.bytes, 7U);
  EXPECT_EQ(table.nodes, 4U);
  EXPECT_EQ(table.ranks, 32U);
  EXPECT_EQ(table.algorithms, 7);
  EXPECT_EQ(table.protocols, 3);
  EXPECT_EQ(table.interface_version, version());
  for (int a = 0; a < abi::kNumAlgorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) EXPECT_EQ(table.cost_us[a][p], offered.at(a, p));
  }

  tuner.Ask(MakeCall(20000));
  ASSERT_EQ(nccltune_tuner_last_table(abi::kAllReduce, SIZE_MAX, &table), NCCLTUNE_TUNER_OK);
  EXPECT_EQ(table.bytes, 20000U);

  nccltune_tuner_record(0);
  tuner.Ask(MakeCall(7));
  ASSERT_EQ(nccltune_tuner_last_table(abi::kAllReduce, 7, &table), NCCLTUNE_TUNER_OK);
  EXPECT_EQ(table.sequence, sequence);  // records stay readable
}

TEST_P(TableControlTest, KeepsTheNewestTables) {
  const TestTuner tuner(version(), kScale);
  nccltune_tuner_record(1);
  // Four times as many sizes as fit. The last 100 must be found.
  constexpr uint64_t kAsked = 4096;
  for (uint64_t i = 0; i < kAsked; ++i) tuner.Ask(MakeCall(i * 1000));
  nccltune_tuner_table table{};
  for (uint64_t i = kAsked - 100; i < kAsked; ++i) {
    ASSERT_EQ(nccltune_tuner_last_table(abi::kAllReduce, i * 1000, &table), NCCLTUNE_TUNER_OK);
    EXPECT_EQ(table.bytes, i * 1000);
  }
  EXPECT_EQ(nccltune_tuner_last_table(abi::kAllReduce, 999999999, &table), NCCLTUNE_TUNER_NOTHING);
  ASSERT_EQ(nccltune_tuner_last_table(abi::kAllReduce, SIZE_MAX, &table), NCCLTUNE_TUNER_OK);
  EXPECT_EQ(table.bytes, (kAsked - 1) * 1000);
}

TEST_P(ChunkControlTest, ForcedChunkSizes) {
  const TestTuner tuner(version(), kScale);
  nccltune_tuner_force(abi::kAllReduce, abi::kRing, abi::kSimple, -1, 65536);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kSimple, 1024), 65536U);
  EXPECT_EQ(LastDecision().chunk_bytes_before, 1024U);
  EXPECT_EQ(LastDecision().chunk_bytes, 65536U);
  EXPECT_EQ(LastDecision().outcome, NCCLTUNE_TUNER_APPLIED);
  // NCCL runs another pair or collective: the size does not apply.
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 1024), 1024U);
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kLl, 1024), 1024U);
  EXPECT_EQ(tuner.AskChunk(abi::kBroadcast, abi::kRing, abi::kSimple, 1024), 1024U);
}

TEST_P(ChunkControlTest, OrdersGoBeforeARulesChunkSize) {
  const RuledTuner tuner(version(), "allreduce,0,9999,ring,simple,-1,-1,-1,-1,-1,32768\n");
  const auto chunk = [&tuner] {
    return tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kSimple, 1024);
  };
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(chunk(), 32768U);
  nccltune_tuner_force(abi::kAllReduce, abi::kRing, abi::kSimple, -1, 65536);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(chunk(), 65536U);
  nccltune_tuner_force(abi::kAllReduce, abi::kRing, abi::kSimple, -1, 0);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(chunk(), 1024U);
  nccltune_tuner_force(abi::kAllReduce, -1, -1, -1, 0);  // NCCL's default
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(chunk(), 1024U);
  nccltune_tuner_release(abi::kAllReduce);
  EXPECT_EQ(chunk(), 1024U);  // no rule was taken for that call
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(chunk(), 32768U);
  // The record contains the rule's choice.
  nccltune_tuner_record(1);
  tuner.Ask(MakeCall(20000));  // no rule
  EXPECT_EQ(chunk(), 1024U);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(chunk(), 32768U);
  EXPECT_EQ(LastDecision().source, NCCLTUNE_TUNER_BY_RULE);
  EXPECT_EQ(LastDecision().chunk_bytes_before, 1024U);
  EXPECT_EQ(LastDecision().chunk_bytes, 32768U);
}

TEST_P(ChunkControlTest, UnsafeChunkSizesAreRefused) {
  const TestTuner tuner(version(), kScale);
  // Below the grain of LL128 NCCL would make it 0.
  nccltune_tuner_force(abi::kAllReduce, abi::kTree, abi::kLl128, -1, 1919);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kLl128, 19200), 19200U);
  EXPECT_EQ(LastDecision().outcome, NCCLTUNE_TUNER_CHUNK_REFUSED);
  // NVLS has its own buffers, which NCCL does not check: only a smaller size is safe.
  nccltune_tuner_force(abi::kAllReduce, abi::kNvls, abi::kSimple, -1, 65536);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kNvls, abi::kSimple, 32768), 32768U);
  EXPECT_EQ(LastDecision().outcome, NCCLTUNE_TUNER_CHUNK_REFUSED);
  tuner.Ask(MakeCall(5));
  EXPECT_EQ(tuner.AskChunk(abi::kAllReduce, abi::kNvls, abi::kSimple, 131072), 65536U);
  EXPECT_EQ(LastDecision().outcome, NCCLTUNE_TUNER_APPLIED);
}

INSTANTIATE_TEST_SUITE_P(Tuner, ControlTest, ::testing::ValuesIn(kVersions), NameOfVersion);
INSTANTIATE_TEST_SUITE_P(Tuner, TableControlTest, ::testing::Range(3, 8), NameOfVersion);
INSTANTIATE_TEST_SUITE_P(Tuner, ChunkControlTest, ::testing::Range(6, 8), NameOfVersion);

TEST(Control, ArgumentsAreChecked) {
  EXPECT_EQ(nccltune_tuner_force(5, 0, 0, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(-2, 0, 0, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 7, 0, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 0, 3, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, -1, 0, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 0, -1, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, -2, -2, -1, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 0, 0, 0, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 0, 0, 65, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 0, 0, -2, 0), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_force(0, 0, 0, -1, (size_t{1} << 30U) + 1), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_release(5), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_record(2), NCCLTUNE_TUNER_INVALID);
  nccltune_tuner_decision decision{};
  nccltune_tuner_table table{};
  EXPECT_EQ(nccltune_tuner_last_decision(-1, &decision), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_last_decision(0, nullptr), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_device_decision(-1, 0, &decision), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_device_decision(64, 0, &decision), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_last_table(9, 0, &table), NCCLTUNE_TUNER_INVALID);
  EXPECT_EQ(nccltune_tuner_last_table(0, 0, nullptr), NCCLTUNE_TUNER_INVALID);
  for (int c = 0; c < abi::kNumCollectives; ++c) EXPECT_EQ(OrderWord(c), 0U);
}

TEST(Control, WhatWasNeverRecordedIsNothing) {
  nccltune_tuner_decision decision{};
  nccltune_tuner_table table{};
  EXPECT_EQ(nccltune_tuner_last_decision(abi::kReduce, &decision), NCCLTUNE_TUNER_NOTHING);
  EXPECT_EQ(nccltune_tuner_last_table(abi::kReduce, SIZE_MAX, &table), NCCLTUNE_TUNER_NOTHING);
  // An entry that is not in use has collective 0 (broadcast) and 0 bytes.
  EXPECT_EQ(nccltune_tuner_last_table(abi::kBroadcast, 0, &table), NCCLTUNE_TUNER_NOTHING);
}

TEST(Control, Versions) {
  EXPECT_EQ(nccltune_tuner_control_version(), NCCLTUNE_TUNER_CONTROL_VERSION);
  EXPECT_STREQ(nccltune_tuner_version(), NCCLTUNE_TEST_VERSION);
}

TEST(Control, OrdersFitOneWord) {
  for (const bool recording : {false, true}) {
    for (int algorithm = -1; algorithm < abi::kNumAlgorithms; ++algorithm) {
      for (const int channels : {-1, 1, 64}) {
        for (const uint32_t chunk : {0U, 16U, 1U << 30U}) {
          const Orders orders = {.forced = true,
                                 .recording = recording,
                                 .algorithm = algorithm,
                                 .protocol = algorithm < 0 ? -1 : algorithm % 3,
                                 .channels = channels,
                                 .chunk_bytes = chunk};
          const Orders back = Unpacked(Packed(orders));
          EXPECT_TRUE(back.forced);
          EXPECT_EQ(back.recording, recording);
          EXPECT_EQ(back.algorithm, orders.algorithm);
          EXPECT_EQ(back.protocol, orders.protocol);
          EXPECT_EQ(back.channels, orders.channels);
          EXPECT_EQ(back.chunk_bytes, orders.chunk_bytes);
        }
      }
    }
  }
  EXPECT_EQ(Packed({}), 0U);
  EXPECT_FALSE(Unpacked(0).forced);
}

TEST(Concurrency, ACallSeesAWholeOrderOrNone) {
  const RuledTuner tuner(6, "allreduce,0,9999,ring,ll,4,-1,-1,-1,-1,8192\n");
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&] {
      Call call;
      call.collective = abi::kAllReduce;
      call.bytes = 5;
      while (!stop) {
        const Answer answer = tuner.Ask(call);
        const Pair chosen = Chosen(answer, 6);
        const bool rule = chosen == Pair{abi::kRing, abi::kLl} && answer.channels == 4;
        const bool one = chosen == Pair{abi::kTree, abi::kSimple} && answer.channels == 8;
        const bool other = chosen == Pair{abi::kPat, abi::kLl128} && answer.channels == 16;
        if (!rule && !one && !other) ++wrong;
        const size_t chunk = tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 512);
        if (chunk != 512 && chunk != 4096) ++wrong;
        const size_t by_rule = tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kLl, 512);
        if (by_rule != 512 && by_rule != 8192) ++wrong;
      }
    });
  }
  nccltune_tuner_decision decision{};
  nccltune_tuner_table table{};
  // Continue until the callers have made enough calls.
  for (int i = 0; i < 2000 || decision.sequence < 100; ++i) {
    nccltune_tuner_force(abi::kAllReduce, abi::kTree, abi::kSimple, 8, 4096);
    nccltune_tuner_record(i % 2);
    nccltune_tuner_force(NCCLTUNE_TUNER_ALL, abi::kPat, abi::kLl128, 16, 0);
    nccltune_tuner_last_decision(abi::kAllReduce, &decision);
    nccltune_tuner_last_table(abi::kAllReduce, 5, &table);
    nccltune_tuner_release(NCCLTUNE_TUNER_ALL);
    if (i % 100 == 0) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  nccltune_tuner_record(0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace nccltune::tuner
