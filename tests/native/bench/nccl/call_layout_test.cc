// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/call_layout.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

Step StepOf(Collective collective, size_t bytes, Dtype dtype = Dtype::kFloat) {
  Step step;
  step.collective = collective;
  step.bytes = bytes;
  step.dtype = dtype;
  step.root = 1;
  return step;
}

CallLayout LaidOut(const Step& step, int rank, int ranks) {
  CallLayout layout;
  const auto error = LayOut(step, rank, ranks, &layout);
  EXPECT_FALSE(error) << error->text;
  return layout;
}

TEST(CallLayout, SizesAreTotalsAsTheTunerCountsThem) {
  struct Wanted {
    Collective collective;
    size_t count, send, receive;
  };
  const Wanted all[] = {
      {Collective::kBroadcast, 1024, 4096, 4096},    {Collective::kReduce, 1024, 4096, 4096},
      {Collective::kAllReduce, 1024, 4096, 4096},    {Collective::kSendRecv, 1024, 4096, 4096},
      {Collective::kAllGather, 256, 1024, 4096},     {Collective::kGather, 256, 1024, 4096},
      {Collective::kReduceScatter, 256, 4096, 1024}, {Collective::kScatter, 256, 4096, 1024},
      {Collective::kAllToAll, 256, 4096, 4096},
  };
  for (const Wanted& wanted : all) {
    const CallLayout layout = LaidOut(StepOf(wanted.collective, 4096), 2, 4);
    EXPECT_EQ(layout.count, wanted.count);
    EXPECT_EQ(layout.send_bytes, wanted.send);
    EXPECT_EQ(layout.receive_bytes, wanted.receive);
    EXPECT_EQ(layout.bytes, 4096U);
  }
}

TEST(CallLayout, UnevenSizesAreRoundedTo16BytesARank) {
  const CallLayout layout = LaidOut(StepOf(Collective::kAllGather, 1024), 0, 3);
  EXPECT_EQ(layout.send_bytes, 336U);
  EXPECT_EQ(layout.bytes, 1008U);
  // Sizes that divide evenly are unchanged, aligned or not; small ones are rounded down to whole
  // elements.
  EXPECT_EQ(LaidOut(StepOf(Collective::kAllGather, 72), 0, 3).bytes, 72U);
  EXPECT_EQ(LaidOut(StepOf(Collective::kAllToAll, 32), 0, 3).bytes, 24U);
  EXPECT_EQ(LaidOut(StepOf(Collective::kAllReduce, 1023), 0, 3).bytes, 1020U);
}

TEST(CallLayout, InPlaceARankUsesItsPartOfTheLargerBuffer) {
  Step step = StepOf(Collective::kAllGather, 4096);
  step.in_place = true;
  EXPECT_EQ(LaidOut(step, 3, 4).send_offset, 3072U);
  EXPECT_EQ(LaidOut(step, 3, 4).receive_offset, 0U);
  EXPECT_EQ(LaidOut(step, 3, 4).region_bytes(), 4096U);
  step.collective = Collective::kReduceScatter;
  EXPECT_EQ(LaidOut(step, 3, 4).send_offset, 0U);
  EXPECT_EQ(LaidOut(step, 3, 4).receive_offset, 3072U);
}

TEST(CallLayout, RejectsImpossibleCalls) {
  CallLayout layout;
  Step step = StepOf(Collective::kAllGather, 8);
  EXPECT_EQ(LayOut(step, 0, 4, &layout)->kind, ErrorKind::kUnsupported);
  EXPECT_EQ(LayOut(step, 0, 4, &layout)->text, "8 bytes hold no element of 4 bytes for each rank");
  step = StepOf(Collective::kSendRecv, 4096);
  step.in_place = true;
  EXPECT_EQ(LayOut(step, 0, 4, &layout)->text, "sendrecv has no in-place form");
  step = StepOf(Collective::kReduce, 4096);
  step.root = 4;
  EXPECT_EQ(LayOut(step, 0, 4, &layout)->text, "there is no rank 4 to be the root");
}

std::string InWords(const std::vector<ResultPart>& parts) {
  std::string words;
  for (const ResultPart& part : parts) {
    words += std::to_string(part.source) + "[" + std::to_string(part.first) + "+" +
             std::to_string(part.elements) + "]@" + std::to_string(part.offset) + " ";
  }
  return words;
}

TEST(CallLayout, ListsTheResultPartsOfEachRank) {
  const auto result = [](Collective collective, int rank) {
    const Step step = StepOf(collective, 48);
    return InWords(ResultOf(step, LaidOut(step, rank, 3), rank, 3));
  };
  EXPECT_EQ(result(Collective::kBroadcast, 0), "1[0+12]@0 ");
  EXPECT_EQ(result(Collective::kReduce, 0), "");
  EXPECT_EQ(result(Collective::kReduce, 1), "-1[0+12]@0 ");
  EXPECT_EQ(result(Collective::kAllReduce, 2), "-1[0+12]@0 ");
  EXPECT_EQ(result(Collective::kReduceScatter, 2), "-1[8+4]@0 ");
  EXPECT_EQ(result(Collective::kAllGather, 2), "0[0+4]@0 1[0+4]@16 2[0+4]@32 ");
  EXPECT_EQ(result(Collective::kSendRecv, 0), "2[0+12]@0 ");
  EXPECT_EQ(result(Collective::kAllToAll, 2), "0[8+4]@0 1[8+4]@16 2[8+4]@32 ");
  EXPECT_EQ(result(Collective::kGather, 2), "");
  EXPECT_EQ(result(Collective::kGather, 1), "0[0+4]@0 1[0+4]@16 2[0+4]@32 ");
  EXPECT_EQ(result(Collective::kScatter, 2), "1[8+4]@0 ");
}

}  // namespace
}  // namespace nccltune::bench
