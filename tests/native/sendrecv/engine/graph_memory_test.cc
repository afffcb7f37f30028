// SPDX-License-Identifier: Apache-2.0
//
// Memory of captured messages stays exported until the communicator ends.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "sendrecv/communicator.h"
#include "sendrecv/engine/sharing.h"

namespace nccltune::sendrecv {
namespace {

bool IsExported(Communicator& communicator, Segment& segment, uint64_t number) {
  communicator.WithdrawStale();
  return std::ranges::any_of(segment.memory().records[0].exports, [&](const ExportEntry& entry) {
    return entry.number.load() == number;
  });
}

// Rank 0 exports a span of two chunks. Then the chunk that no message uses is replaced.
TEST(GraphMemory, StaysExportedWhenAnotherChunkIsReplaced) {
  for (const bool captured : {false, true}) {
    const std::string key = "graph memory " + std::to_string(getpid());
    std::string why;
    SendRecvOptions options;
    options.policy.graphs = true;
    std::shared_ptr<Communicator> ranks[2];
    for (const int rank : {0, 1}) {
      soft::UseGpu(rank);
      ranks[rank] = Communicator::Join(key, rank, options, &why);
      ASSERT_NE(ranks[rank], nullptr) << why;
    }
    const std::shared_ptr<Segment> segment = Segment::Open(key, &why);
    for (const int rank : {0, 1}) ranks[rank]->Begin(rank);
    Port* const sends = ranks[0]->FindPort(1, Role::kSender, true);
    soft::UseGpu(1);
    Port* const receives = ranks[1]->FindPort(0, Role::kReceiver, true);
    ASSERT_TRUE(sends != nullptr && receives != nullptr);
    soft::UseGpu(0);
    Segments memory(2, 2);
    const auto find = [&](size_t chunk) {
      return ranks[0]->FindMemory(1, Role::kSender, memory.at(chunk * kChunk), kChunk);
    };
    const uint64_t number = find(0).number;
    ASSERT_TRUE(IsExported(*ranks[0], *segment, number));
    if (captured) {
      const CapturedMessage first = sends->end->Capture(kChunk, number, 0);
      receives->end->Capture(kChunk, 1, 0);
      ASSERT_NE(receives->end->AcceptCapture(true), nullptr);
      ASSERT_NE(sends->end->ResolveCapture(first.number), nullptr);
    }
    memory.Unmap(1);
    memory.Map(1);
    EXPECT_NE(find(1).number, number) << "the old span gets no more messages";
    EXPECT_EQ(IsExported(*ranks[0], *segment, number), captured);
    EXPECT_TRUE(ranks[0]->Close() && ranks[1]->Close());
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
