// SPDX-License-Identifier: Apache-2.0
// Tests steps that fail: wrong results, stuck and failing collectives, too little memory.
#include "bench/nccl/support.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

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
    for (const bool in_place : {false, true}) {
      Step step = StepOf(Collective::kAllReduce, 4096);
      step.graph = graph;
      step.in_place = in_place;
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
  const Clock::time_point start = Clock::now();
  const StepError error = Failed(step);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
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
  const Clock::time_point start = Clock::now();
  const StepError error = Failed(StepOf(Collective::kReduceScatter, 4096));
  aborter.join();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(error.kind, ErrorKind::kDied);
}

TEST_F(NcclFailure, AnAsynchronousErrorEndsTheStepLongBeforeItsTime) {
  environment_.Set("FAKE_NCCL_ASYNC", "1:4096");
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 4096);
  step.timeout_s = 600;
  const StepError error = Failed(step);
  EXPECT_EQ(error.kind, ErrorKind::kNccl);
  EXPECT_TRUE(error.fatal);
  EXPECT_EQ(error.rank, 1);
}

TEST_F(NcclFailure, AFailingCallOnOneRankEndsTheStepLongBeforeItsTime) {
  environment_.Set("FAKE_NCCL_FAIL", "1:4096");
  Open(2);
  Step step = StepOf(Collective::kAllReduce, 4096);
  step.timeout_s = 600;
  const StepError error = Failed(step);
  EXPECT_EQ(error.kind, ErrorKind::kNccl);
  EXPECT_EQ(error.rank, 1);
  EXPECT_EQ(error.text,
            "NCCL failed to all-reduce: unhandled cuda error (run with NCCL_DEBUG=INFO for "
            "details): a made-up failure");
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
  // An in-place call needs only one buffer.
  Step in_place = large(Collective::kAllReduce, 10 << 20);
  in_place.in_place = true;
  EXPECT_FALSE(backend_->Run(in_place).error);
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
