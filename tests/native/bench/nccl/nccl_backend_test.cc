// SPDX-License-Identifier: Apache-2.0
// Tests steps that succeed: every collective, type and reduction, and what is reported about them.
#include "bench/nccl/support.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

class NcclBackendTest : public FakeGpus {
 protected:
  // Everything must be released.
  void TearDown() override { Close(); }
  // Checks that the result has no error and is complete.
  StepResult Good(const Step& step) {
    StepResult result = backend_->Run(step);
    EXPECT_FALSE(result.error) << result.error->text;
    EXPECT_EQ(result.timings.size(), info_.gpus.size());
    for (const RankTiming& timing : result.timings) {
      EXPECT_GT(timing.event_us, 0);
      EXPECT_GT(timing.host_us.value_or(0), 0);
      EXPECT_EQ(timing.wrong.has_value(), step.check);
      EXPECT_EQ(timing.wrong.value_or(0), 0);
    }
    return result;
  }

  static Step Forcing(Step step, host::Combination combination, int channels = -1) {
    step.choice = {Choice::Kind::kForced, combination, channels, 0};
    return step;
  }
};

constexpr host::Combination kTreeLl = {abi::kTree, abi::kLl};
constexpr host::Combination kRingSimple = {abi::kRing, abi::kSimple};

TEST_F(NcclBackendTest, EveryCollectiveWithEveryType) {
  Open(3);
  for (const Collective collective : info_.collectives) {
    for (const Dtype dtype : info_.dtypes) {
      Step step = StepOf(collective, 3 * 5000);
      step.dtype = dtype;
      step.root = 2;
      Good(step);
    }
  }
}

TEST_F(NcclBackendTest, BesideALoad) {
  Open(3);
  for (const size_t bytes : {size_t{1} << 10, size_t{256} << 10}) {
    Step step = StepOf(Collective::kSendRecv, bytes);
    step.iterations = 20;
    step.load = true;
    const StepResult result = Good(step);
    for (const RankTiming& timing : result.timings) {
      ASSERT_TRUE(timing.load_alone_us);
      EXPECT_GT(*timing.load_alone_us, 0);
      if (timing.load_us) {
        EXPECT_GT(*timing.load_us, 0);
      }
    }
    step.load = false;
    for (const RankTiming& timing : Good(step).timings) {
      EXPECT_FALSE(timing.load_us || timing.load_alone_us);
    }
  }
}

TEST_F(NcclBackendTest, EveryReductionWithEveryType) {
  Open(3);
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
    for (const Redop redop : info_.redops) {
      for (const Dtype dtype : info_.dtypes) {
        // The others differ in what a rank gets. Each type and each reduction is with both, the
        // other pairs are with one of them.
        const bool is_odd = (static_cast<int>(redop) + static_cast<int>(dtype)) % 2 != 0;
        if (collective != Collective::kAllReduce && redop != Redop::kSum &&
            dtype != Dtype::kFloat && is_odd != (collective == Collective::kReduce))
          continue;
        Step step = StepOf(collective, 3 * 8 * 100);
        step.dtype = dtype;
        step.redop = redop;
        step.root = 1;
        step.iterations = 1;
        SCOPED_TRACE(std::string(RedopNames()[static_cast<size_t>(redop)]) + " " +
                     std::string(DtypeNames()[static_cast<size_t>(dtype)]));
        Good(step);
      }
    }
  }
}

TEST_F(NcclBackendTest, RegisteredAsAGraphAndInGroups) {
  Open(2);
  for (const Collective collective : info_.collectives) {
    for (int mode = 1; mode < 8; ++mode) {
      const bool grouped = mode >= 4;
      // The fake NCCL accepts no other groups of sends and receives.
      if (grouped && !IsTuned(collective)) continue;
      Step step = StepOf(collective, 4 * 6000);
      step.group_calls = grouped ? 4 : 1;
      step.registered = (mode & 1) != 0;
      step.graph = (mode & 2) != 0;
      SCOPED_TRACE(std::string(AllCollectiveNames()[static_cast<size_t>(collective)]) + " mode " +
                   std::to_string(mode));
      const StepResult result = Good(step);
      if (!grouped) continue;
      ASSERT_TRUE(result.seen);
      EXPECT_EQ(result.seen->pipe_ops, 1) << "the calls fit in the 24 channels";
      // NCCL registers the buffers of calls in a graph by itself.
      EXPECT_EQ(result.seen->registered, step.registered || step.graph);
    }
  }
}

TEST_F(NcclBackendTest, PipeOpsAreTheCallsOfAGroupForEachChannel) {
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 60 << 10);
  EXPECT_EQ(Good(step).seen->pipe_ops, 1);
  step.group_calls = 24;
  EXPECT_EQ(Good(step).seen->pipe_ops, 1);
  step.group_calls = 60;
  step.registered = true;
  const StepResult result = Good(Forcing(step, kTreeLl));
  EXPECT_EQ(result.seen->pipe_ops, 3);
  EXPECT_EQ(result.seen->registered, true);
  // The tuner is asked about the size of the whole group, so the choice is applied.
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(result.ran->combination, kTreeLl);
  EXPECT_EQ(backend_->Table(step).row.seen->pipe_ops, 3);
  step.group_calls = 1;
  EXPECT_EQ(Good(step).seen->pipe_ops, 1);
}

TEST_F(NcclBackendTest, AWrongResultOfAnyCallOfAGroupIsCounted) {
  environment_.Set("FAKE_NCCL_WRONG", "1:1000");
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 3000);
  step.group_calls = 3;
  const StepResult result = backend_->Run(step);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->kind, ErrorKind::kWrong);
  EXPECT_EQ(result.timings.at(1).wrong, 3) << "one in each call";
}

TEST_F(NcclBackendTest, ACallOfAGroupNeedsAnElement) {
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 8);
  step.group_calls = 4;
  EXPECT_EQ(backend_->Run(step).error->text,
            "8 bytes hold no element of 4 bytes in each call of the group");
}

TEST_F(NcclBackendTest, ARegistrationThatNcclSkipsIsRefused) {
  environment_.Set("NCCL_LOCAL_REGISTER", "0");
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 4096);
  EXPECT_EQ(Good(step).seen->registered, false);
  step.registered = true;
  EXPECT_EQ(backend_->Run(step).error->kind, ErrorKind::kUnsupported);
  EXPECT_EQ(backend_->Table(step).error->text,
            "NCCL does not use the registration of the buffers (regBuff is 0); is "
            "NCCL_LOCAL_REGISTER=0 set?");
}

TEST_F(NcclBackendTest, SizesGrowAndShrink) {
  Open(2);
  for (const size_t bytes : {8U, 5U << 20U, 1U << 10U, 9U << 20U, 24U}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather}) {
      Step step = StepOf(collective, bytes);
      step.iterations = 1;
      Good(step);
    }
  }
}

TEST_F(NcclBackendTest, ProcessesAgreeOnlyOnNewNeeds) {
  Open(2);
  const auto gathers = [this](const Step& step) {
    const int before = exchange_.gathers;
    Good(step);
    return exchange_.gathers - before;
  };
  EXPECT_EQ(gathers(StepOf(Collective::kAllReduce, 4096)), 1);
  EXPECT_EQ(gathers(StepOf(Collective::kAllReduce, 4096)), 0);
  EXPECT_EQ(gathers(Forcing(StepOf(Collective::kReduceScatter, 1024), kRingSimple)), 0);
  EXPECT_EQ(gathers(StepOf(Collective::kAllReduce, 8192)), 1) << "larger";
  EXPECT_EQ(gathers(StepOf(Collective::kAllGather, 8192)), 1) << "other data";
  Step step = StepOf(Collective::kAllGather, 8192);
  step.registered = true;
  EXPECT_EQ(gathers(step), 1) << "other memory";
  step.dtype = Dtype::kHalf;
  EXPECT_EQ(gathers(step), 1) << "another type";
}

TEST_F(NcclBackendTest, ForcedChoicesRunAndAreReported) {
  Open(2);
  const Step step = StepOf(Collective::kAllReduce, 1 << 20);
  StepResult result = Good(Forcing(step, kTreeLl));
  EXPECT_EQ(result.ran->combination, kTreeLl);
  EXPECT_EQ(result.ran->channels, 24);
  EXPECT_TRUE(result.applied);
  result = Good(Forcing(step, kRingSimple, 4));
  EXPECT_EQ(result.ran->combination, kRingSimple);
  EXPECT_EQ(result.ran->channels, 4);
  // A channel count that is too large for the message is reduced, and the reduced count is
  // reported.
  result = Good(Forcing(StepOf(Collective::kAllReduce, 1 << 10), kTreeLl, 8));
  EXPECT_EQ(result.ran->channels, 1);
  EXPECT_TRUE(result.applied);
}

TEST_F(NcclBackendTest, TheDefaultIsReported) {
  Open(2);
  EXPECT_EQ(Good(StepOf(Collective::kAllReduce, 1 << 10)).ran->combination, kTreeLl);
  EXPECT_EQ(Good(StepOf(Collective::kBroadcast, 1 << 10)).ran->combination,
            (host::Combination{abi::kRing, abi::kLl}));
  EXPECT_EQ(Good(StepOf(Collective::kBroadcast, 4 << 20)).ran->combination, kRingSimple);
  EXPECT_FALSE(Good(StepOf(Collective::kSendRecv, 1 << 10)).ran->combination.known());
  EXPECT_EQ(Good(StepOf(Collective::kSendRecv, 1 << 10)).ran->channels, 2);
}

TEST_F(NcclBackendTest, WhatNcclCannotRunIsNotApplied) {
  Open(2);
  const StepResult result =
      Good(Forcing(StepOf(Collective::kAllReduce, 1 << 10), {abi::kNvls, abi::kSimple}));
  EXPECT_FALSE(result.applied);
  EXPECT_EQ(result.ran->combination, kTreeLl);
}

TEST_F(NcclBackendTest, WithoutTheProbeTheTunerReports) {
  environment_.Set("NCCL_PROFILER_PLUGIN", "none");
  Open(2);
  EXPECT_STREQ(std::getenv("NCCL_PROFILER_PLUGIN"), "none");
  const StepResult result = Good(StepOf(Collective::kAllReduce, 1 << 10));
  EXPECT_EQ(result.ran->combination, kTreeLl);
  EXPECT_FALSE(result.ran->channels);
  Step graph = Forcing(StepOf(Collective::kAllReduce, 1 << 10), kRingSimple);
  graph.graph = true;
  EXPECT_EQ(Good(graph).ran->combination, kRingSimple);
}

TEST_F(NcclBackendTest, TheTunerReportsGraphsToo) {
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 1 << 10);
  step.graph = true;
  const StepResult result = Good(step);
  EXPECT_EQ(result.ran->combination, kTreeLl);
  EXPECT_FALSE(result.ran->channels);
}

TEST_F(NcclBackendTest, AnOldChoiceForAllReducesDoesNotStay) {
  Open(2);
  Good(Forcing(StepOf(Collective::kAllReduce, 1 << 20), kRingSimple, 2));
  Good(StepOf(Collective::kBroadcast, 1 << 10));
  EXPECT_EQ(Good(StepOf(Collective::kAllReduce, 1 << 20)).ran->channels, 24);
}

TEST_F(NcclBackendTest, WithoutACheckNothingIsCounted) {
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 1 << 10);
  step.check = false;
  step.warmup = 0;
  step.iterations = 1;
  Good(step);
  step.warmup = 7;
  Good(step);
}

TEST_F(NcclBackendTest, TheTableIsNcclsOwn) {
  Open(2);
  const TableResult result = backend_->Table(StepOf(Collective::kAllReduce, 1 << 10));
  ASSERT_FALSE(result.error) << result.error->text;
  EXPECT_EQ(result.row.costs.size(), 6U);
  EXPECT_EQ(result.row.predicted, kTreeLl);
  // A forced choice must not appear in the table.
  Good(Forcing(StepOf(Collective::kAllReduce, 1 << 10), kRingSimple));
  EXPECT_EQ(backend_->Table(StepOf(Collective::kAllReduce, 1 << 10)).row.predicted, kTreeLl);
  // The size of all-gather is the sum over all ranks.
  EXPECT_EQ(backend_->Table(StepOf(Collective::kAllGather, 1 << 20)).row.costs.size(), 4U);
  EXPECT_EQ(backend_->Table(StepOf(Collective::kSendRecv, 1 << 10)).error->kind,
            ErrorKind::kUnsupported);
}

TEST_F(NcclBackendTest, Nccl221ShowsNoTable) {
  environment_.Set("FAKE_NCCL_VERSION", "22105");
  Open(2);
  EXPECT_EQ(backend_->Table(StepOf(Collective::kAllReduce, 1 << 10)).error->text,
            "NCCL 2.21.5 passes no predictions to a tuner");
  const StepResult forced = Good(Forcing(StepOf(Collective::kAllReduce, 1 << 10), kTreeLl));
  EXPECT_EQ(forced.ran->combination, kTreeLl);
  EXPECT_FALSE(Good(StepOf(Collective::kAllReduce, 1 << 10)).ran);
}

TEST_F(NcclBackendTest, AChunkSizeIsReportedAndNeedsTheInterface) {
  Step step = Forcing(StepOf(Collective::kAllReduce, 1 << 20), kRingSimple);
  step.choice.chunk_bytes = 65536;
  Open(2);
  EXPECT_EQ(backend_->Run(step).error->text,
            "NCCL 2.28.9 asks no tuner for a chunk size; that needs 2.30 or later");
  Close();
  info_ = {};
  environment_.Set("FAKE_NCCL_VERSION", "23007");
  Open(2);
  EXPECT_EQ(Good(step).ran->chunk_bytes, 65536U);
}

TEST_F(NcclBackendTest, NodesAreNccls) {
  environment_.Set("FAKE_NCCL_NODES", "2");
  Open(4);
  EXPECT_EQ(info_.nodes, 2);
  Good(StepOf(Collective::kAllReduce, 1 << 16));
}

// Tests steps that fail: wrong results, stuck and failing collectives, too little memory.

using Clock = std::chrono::steady_clock;

class NcclFailure : public FakeGpus {
 protected:
  StepError Failed(const Step& step) {
    const StepResult result = backend_->Run(step);
    EXPECT_TRUE(result.error);
    return result.error.value_or(StepError{});
  }
};

TEST_F(NcclFailure, AWrongResultIsCountedAndReported) {
  environment_.Set("FAKE_NCCL_WRONG", "1:4096");
  Open(3);
  for (const bool graph : {false, true}) {
    Step step = StepOf(Collective::kAllReduce, 4096);
    step.graph = graph;
    const StepResult result = backend_->Run(step);
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->kind, ErrorKind::kWrong);
    EXPECT_EQ(result.error->rank, 1);
    EXPECT_FALSE(result.error->fatal);
    EXPECT_EQ(result.error->text,
              "allreduce of 4096 bytes with NCCL's default is wrong: 1 elements on rank 1");
    ASSERT_EQ(result.timings.size(), 3U);
    EXPECT_EQ(result.timings[0].wrong, 0);
    EXPECT_EQ(result.timings[1].wrong, 1);
  }
  EXPECT_FALSE(backend_->Run(StepOf(Collective::kAllReduce, 8192)).error);
  Close();
}

TEST_F(NcclFailure, AWrongResultOfEveryCollective) {
  environment_.Set("FAKE_NCCL_WRONG", "1:0");
  Open(2);
  for (const Collective collective : info_.collectives) {
    Step step = StepOf(collective, 4096);
    step.root = 1;
    const bool on_root_only = collective == Collective::kScatter;
    EXPECT_EQ(Failed(step).kind, ErrorKind::kWrong) << static_cast<int>(collective);
    EXPECT_EQ(Failed(step).rank, 1) << on_root_only;
  }
  Close();
}

TEST_F(NcclFailure, AStuckCollectiveIsAborted) {
  environment_.Set("FAKE_NCCL_HANG", "1:4096");
  Open(3);
  EXPECT_FALSE(backend_->Run(StepOf(Collective::kAllReduce, 8192)).error);
  Step step = StepOf(Collective::kAllReduce, 4096);
  step.choice = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, 2, 0};
  step.timeout_s = 0.4;
  const StepError error = Failed(step);
  EXPECT_EQ(error.kind, ErrorKind::kTimeout);
  EXPECT_TRUE(error.fatal);
  EXPECT_EQ(error.rank, 0);
  EXPECT_EQ(error.text.find("allreduce of 4096 bytes with tree/ll on 2 channels is stuck: rank 0 "
                            "was not done after 0.4 s; the communicator was aborted"),
            0U)
      << error.text;
  // No further step can run, and nothing may hang.
  EXPECT_EQ(Failed(StepOf(Collective::kAllReduce, 8192)).kind, ErrorKind::kDied);
  backend_->Close();
}

TEST_F(NcclFailure, AbortFromAnotherThreadEndsAStuckStep) {
  environment_.Set("FAKE_NCCL_HANG", "0:4096");
  Open(2);
  std::thread aborter([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    backend_->Abort();
  });
  const StepError error = Failed(StepOf(Collective::kReduceScatter, 4096));
  aborter.join();
  EXPECT_EQ(error.kind, ErrorKind::kDied);
}

TEST_F(NcclFailure, AnErrorOnOneRankEndsTheStepLongBeforeItsTime) {
  for (const auto& [how, text] :
       {std::pair("FAKE_NCCL_ASYNC", ""),
        std::pair("FAKE_NCCL_FAIL",
                  "NCCL failed to all-reduce: unhandled cuda error (run with NCCL_DEBUG=INFO for "
                  "details): a made-up failure")}) {
    const ScopedVariable fails(how, "1:4096");
    Open(2);
    Step step = StepOf(Collective::kAllReduce, 4096);
    step.timeout_s = 600;
    const StepError error = Failed(step);
    EXPECT_EQ(error.kind, ErrorKind::kNccl);
    EXPECT_TRUE(error.fatal);
    EXPECT_EQ(error.rank, 1);
    EXPECT_TRUE(Has(error.text, text)) << error.text;
    backend_.reset();
  }
}

TEST_F(NcclFailure, AWrongArgumentIsNotTheEnd) {
  environment_.Set("FAKE_NCCL_FAIL", "0:4096");
  environment_.Set("FAKE_NCCL_FAIL_CODE", "4");
  Open(2);
  Step step = StepOf(Collective::kBroadcast, 4096);
  step.graph = true;
  step.root = 1;
  step.timeout_s = 1;
  // Rank 1 only sends, which does not wait; with a call that waits, it would be a timeout.
  const StepError error = Failed(step);
  EXPECT_FALSE(error.text.empty());
}

TEST_F(NcclFailure, AMemoryErrorNamesASizeThatFits) {
  environment_.Set("SOFT_CUDA_MEMORY", std::to_string(size_t{16} << 20U));
  Open(2);
  const auto large = [](Collective collective, size_t bytes) {
    Step step = StepOf(collective, bytes);
    step.warmup = 0;
    step.iterations = 1;
    step.check = false;
    return step;
  };
  EXPECT_FALSE(backend_->Run(large(Collective::kAllReduce, 4 << 20)).error);
  const StepError error = Failed(large(Collective::kAllReduce, 10 << 20));
  EXPECT_EQ(error.kind, ErrorKind::kMemory);
  EXPECT_FALSE(error.fatal);
  EXPECT_EQ(
      error.text.find("10 MiB take 20 MiB of a GPU's memory, and 14 MiB are free: 7 MiB would fit"),
      0U)
      << error.text;
  // One buffer large and the other small, then the reverse.
  EXPECT_FALSE(backend_->Run(large(Collective::kAllGather, 8 << 20)).error);
  EXPECT_FALSE(backend_->Run(large(Collective::kReduceScatter, 8 << 20)).error);
  Close();
}

TEST_F(NcclFailure, InvalidChoices) {
  Open(2);
  Step step = StepOf(Collective::kSendRecv, 4096);
  step.choice = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, -1, 0};
  EXPECT_EQ(Failed(step).kind, ErrorKind::kUnsupported);
  step = StepOf(Collective::kAllReduce, 4096);
  step.choice = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, 1000, 0};
  EXPECT_EQ(Failed(step).text, "the tuner plugin rejects the choice tree/ll on 1000 channels");
  Close();
}

TEST_F(NcclFailure, TheDestructorReleasesEverythingAfterAnAbort) {
  Open(2);
  EXPECT_FALSE(backend_->Run(StepOf(Collective::kAllReduce, 4096)).error);
  backend_->Abort();
  backend_.reset();
}

}  // namespace
}  // namespace nccltune::bench
