// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/calls/message_call.h"
#include "sendrecv/engine/sharing.h"
#include "sendrecv/route.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

// A send from rank 0 to rank 1.
MessageCall Send(const LocalRanks& ranks, uint64_t bytes) {
  static char buffer = 0;
  return {.role = Role::kSender,
          .buffer = &buffer,
          .count = bytes,
          .type = nccl::kInt8,
          .peer = 1,
          .communicator = ranks[0]};
}

Eligibility OfSend(const LocalRanks& ranks, uint64_t bytes) {
  return EligibilityOf(Send(ranks, bytes));
}

const uint64_t kFrom = SendRecvOptions().from;

TEST(Eligibility, BeginsAtTheLowerOfBothThresholds) {
  SendRecvOptions zero;
  SendRecvOptions one;
  zero.from = 5000;
  one.from = 4000;
  LocalRanks ranks("thresholds", zero, one);
  ranks.Begin();
  EXPECT_EQ(OfSend(ranks, 3999), Eligibility::kNative);
  EXPECT_EQ(OfSend(ranks, 4000), Eligibility::kEligible);
}

TEST(Eligibility, EndsWhenTheLaneIsClosed) {
  LocalRanks ranks("closed");
  ranks.Begin();
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kEligible);
  Port* const port = ranks.sends();
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kEligible);
  ASSERT_TRUE(port->end->Close());
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kNative);
}

TEST(Eligibility, WhatNcclChecksAtTheCallIsNotTracked) {
  LocalRanks ranks("tracked");
  ranks.Begin();
  MessageCall call = Send(ranks, kFrom);
  call.peer = 0;
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "a message of a rank to itself";
  call = Send(ranks, 0);
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "no bytes";
  call = Send(ranks, SIZE_MAX);
  call.type = nccl::DataType{7};  // 4 bytes
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "more bytes than a number can hold";
  call = Send(ranks, kFrom);
  call.buffer = nullptr;
  EXPECT_EQ(EligibilityOf(call), Eligibility::kUntracked) << "no memory";
}

TEST(Eligibility, APeerWithOtherSettingsAndADryRunHaveNone) {
  SendRecvOptions other;
  other.policy.graphs = true;
  LocalRanks ranks("other settings", {}, other);
  ranks.Begin();
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kNative);
  SendRecvOptions dry;
  dry.dry_run = true;
  LocalRanks dry_ranks("dry", dry, dry);
  dry_ranks.Begin();
  EXPECT_EQ(OfSend(dry_ranks, kFrom), Eligibility::kNative);
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
