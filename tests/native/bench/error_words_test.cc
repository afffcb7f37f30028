// SPDX-License-Identifier: Apache-2.0
#include "bench/step.h"
#include "bench/words.h"

#include <gtest/gtest.h>

namespace nccltune::bench {
namespace {

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
