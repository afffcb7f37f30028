// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "sendrecv/calls/message_call.h"
#include "sendrecv/counts.h"
#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

// Ranks 0 and 1 of a communicator, both in this process.
class EligibilityTest : public testing::Test {
 protected:
  void Make(const SendRecvOptions& zero, const SendRecvOptions& one) {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    const std::string key = test.name() + std::to_string(getpid());
    for (const int rank : {0, 1}) {
      soft::UseGpu(rank);
      std::string why;
      ranks_[rank] = Communicator::Join(key, rank, rank == 0 ? zero : one, &why);
      ASSERT_NE(ranks_[rank], nullptr) << why;
    }
    for (const int rank : {0, 1}) ranks_[rank]->Begin(rank);
  }
  void TearDown() override {
    for (const auto& rank : ranks_) EXPECT_TRUE(rank->Close());
  }

  // A send from rank 0 to rank 1.
  MessageCall Send(uint64_t bytes) const {
    return {.role = Role::kSender,
            .buffer = &buffer_,
            .count = bytes,
            .type = nccl::kInt8,
            .peer = 1,
            .communicator = ranks_[0]};
  }

  std::shared_ptr<Communicator> ranks_[2];
  mutable char buffer_ = 0;
};

TEST_F(EligibilityTest, BeginsAtTheLowerOfBothThresholds) {
  SendRecvOptions zero;
  SendRecvOptions one;
  zero.from = 5000;
  one.from = 4000;
  Make(zero, one);
  EXPECT_EQ(EligibilityOf(Send(3999)), Eligibility::kNative);
  EXPECT_EQ(EligibilityOf(Send(4000)), Eligibility::kEligible);
}

TEST_F(EligibilityTest, EndsWhenTheLaneIsClosed) {
  Make({}, {});
  const uint64_t large = SendRecvOptions().from;
  EXPECT_EQ(EligibilityOf(Send(large)), Eligibility::kEligible);
  Port* const port = ranks_[0]->FindPort(1, Role::kSender, true);
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(EligibilityOf(Send(large)), Eligibility::kEligible);
  ASSERT_TRUE(port->end->Close());
  EXPECT_EQ(EligibilityOf(Send(large)), Eligibility::kNative);
}

TEST_F(EligibilityTest, WhatNcclChecksAtTheCallIsNotTracked) {
  Make({}, {});
  MessageCall call = Send(SendRecvOptions().from);
  call.peer = 0;
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "a message of a rank to itself";
  call = Send(0);
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "no bytes";
  call = Send(SIZE_MAX);
  call.type = nccl::DataType{7};  // 4 bytes
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "more bytes than a number can hold";
  call = Send(SendRecvOptions().from);
  call.buffer = nullptr;
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "no memory";
}

TEST_F(EligibilityTest, APeerWithOtherSettingsHasNone) {
  SendRecvOptions other;
  other.policy.graphs = true;
  Make({}, other);
  EXPECT_EQ(EligibilityOf(Send(SendRecvOptions().from)), Eligibility::kNative);
}

TEST_F(EligibilityTest, ADryRunHasNone) {
  SendRecvOptions dry;
  dry.dry_run = true;
  Make(dry, dry);
  EXPECT_EQ(EligibilityOf(Send(SendRecvOptions().from)), Eligibility::kNative);
}

TEST(Counts, NameWhatWasTakenAlone) {
  Counts counts;
  EXPECT_EQ(counts.Report(), "");
  counts.Add(Route::kPushed, 100);
  counts.Add(Route::kPushed, 20);
  counts.Add(Route::kDry, 7);
  EXPECT_EQ(counts.Report(),
            "copy engine, pushed: 2 messages, 120 bytes\n"
            "NCCL: dry run, a copy engine would have carried it: 1 messages, 7 bytes\n");
  EXPECT_EQ(counts.Get(Route::kPushed).bytes, 120U);
  EXPECT_EQ(counts.Get(Route::kPulled).messages, 0U);
}

}  // namespace
}  // namespace nccltune::sendrecv
