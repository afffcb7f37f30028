// SPDX-License-Identifier: Apache-2.0
// Memory that was mapped with cuMemMap, in chunks.
#include "sendrecv/memory/exported_memory.h"

#include <csignal>

#include "sendrecv/engine/sharing.h"

namespace nccltune::sendrecv {
namespace {

using soft::Fetch;
using soft::Pattern;

std::vector<uint8_t> Middle(int seed, size_t chunks, size_t from, size_t bytes) {
  const std::vector<uint8_t> all = Pattern(chunks * kChunk, seed);
  const auto begin = all.begin() + static_cast<ptrdiff_t>(from);
  return {begin, begin + static_cast<ptrdiff_t>(bytes)};
}

bool Nobody(uint64_t /*number*/) { return false; }

TEST(Spans, AMessageMayCrossChunks) {
  constexpr size_t kFrom = kChunk + 100;
  constexpr size_t kLength = 2 * kChunk + 77;
  Pair pair;
  pair.Run(
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        const size_t inherited = InheritedDescriptors();
        {
          Segments memory(8, 5);
          memory.Write(3);
          const ExportLookup found = side.exported->Find(memory.at(kFrom), kLength, 1);
          EXPECT_EQ(found.status, ExportStatus::kPending);
          pair.SendLookup(found);
          pair.LetOtherWork();
          EXPECT_EQ(side.Ask(memory.at(kFrom), kLength, 1), ExportStatus::kMapped);
          // The same span is used, because it includes the neighbours of the message.
          const ExportLookup other = side.exported->Find(memory.at(), 5 * kChunk, 1);
          EXPECT_EQ(other.status, ExportStatus::kMapped);
          EXPECT_EQ(other.number, found.number);
          EXPECT_EQ(side.Ask(memory.at(4 * kChunk), kChunk + 1, 1), ExportStatus::kNoMemory);
          EXPECT_EQ(side.Ask(memory.at(), kChunk, 2), ExportStatus::kUnshareable)
              << "nobody is there";
          EXPECT_EQ(InheritedDescriptors(), inherited);
          // The peer copies here.
          pair.Meet();
          EXPECT_EQ(Fetch(memory.at(kFrom), kLength), Pattern(kLength, 9));
        }
        side.exported->WithdrawFreed();
        side.exported->WithdrawStale(Nobody);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.LetOtherWork();
      },
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        const size_t inherited = InheritedDescriptors();
        pair.MeetAndUpdate(side);
        const DeviceAddress there = pair.Resolved(side);
        EXPECT_EQ(Fetch(there, kLength), Middle(3, 5, kFrom, kLength));
        EXPECT_EQ(HeldMemory(), 5U);
        EXPECT_EQ(OpenDescriptors(), before + 5);
        EXPECT_EQ(InheritedDescriptors(), inherited);
        pair.Meet();
        const std::vector<uint8_t> data = Pattern(kLength, 9);
        EXPECT_EQ(soft::cuMemcpyHtoD_v2(there, data.data(), kLength), soft::kCudaSuccess);
        pair.LetOtherWork();
        side.imported->Update(&IsQuiet);
        EXPECT_EQ(pair.Resolved(side), 0U);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
      });
}

TEST(Spans, AnotherChunkAtTheSameAddressIsAnotherShare) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(4, 4);
        memory.Write(1);
        const ExportLookup old = side.exported->Find(memory.at(), 4 * kChunk, 1);
        pair.SendLookup(old);
        pair.LetOtherWork();
        memory.Unmap(2);
        memory.Map(2);
        memory.Write(2);
        const ExportLookup found = side.exported->Find(memory.at(), 4 * kChunk, 1);
        EXPECT_EQ(found.status, ExportStatus::kPending);
        EXPECT_NE(found.number, old.number);
        // The span stays exported, because another message may still use its unchanged chunk.
        side.exported->WithdrawStale([&](uint64_t number) { return number == old.number; });
        pair.LetOtherWork();
        side.exported->WithdrawStale(Nobody);
        pair.SendLookup(found);
        pair.LetOtherWork();
        EXPECT_EQ(side.Ask(memory.at(), 4 * kChunk, 1), ExportStatus::kMapped);
      },
      [&](Side& side) {
        pair.MeetAndUpdate(side);
        EXPECT_EQ(Fetch(pair.Resolved(side), 4 * kChunk), Pattern(4 * kChunk, 1));
        pair.LetOtherWork();
        side.imported->Update(&IsQuiet);
        EXPECT_NE(pair.Resolved(side), 0U);
        EXPECT_EQ(HeldMemory(), 5U);
        pair.LetOtherWork();
        side.imported->Update(&IsQuiet);
        EXPECT_EQ(Fetch(pair.Resolved(side), 4 * kChunk), Pattern(4 * kChunk, 2));
        EXPECT_EQ(HeldMemory(), 4U) << "of the chunk that is gone";
        pair.Meet();
      });
}

TEST(Spans, WhatWasNotMadeForItIsNotShared) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments hidden(4, 4, 0);
        EXPECT_EQ(side.Ask(hidden.at(100), kChunk, 1), ExportStatus::kUnshareable);
        EXPECT_EQ(side.Ask(hidden.at(100), kChunk, 1), ExportStatus::kUnshareable);
        // A new chunk at the same address is checked again.
        hidden.Unmap(0);
        Segments shown(4, 4);
        EXPECT_EQ(side.Ask(shown.at(), 4 * kChunk, 1), ExportStatus::kPending);
      },
      [](Side&) {});
}

TEST(Spans, ARefusedExportIsRemembered) {
  setenv("SOFT_CUDA_REFUSE", "cuMemExportToShareableHandle:2", 1);
  Pair pair;
  pair.Run(
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        Segments memory(3, 3);
        EXPECT_EQ(side.Ask(memory.at(), 3 * kChunk, 1), ExportStatus::kPending);
        EXPECT_EQ(OpenDescriptors(), before + 3);
        EXPECT_EQ(side.Ask(memory.at(), 3 * kChunk, 1), ExportStatus::kUnshareable);
        EXPECT_EQ(side.Ask(memory.at(2 * kChunk), kChunk, 1), ExportStatus::kPending);
      },
      [](Side&) {});
  unsetenv("SOFT_CUDA_REFUSE");
}

class SpansRefused : public ::testing::TestWithParam<const char*> {};

TEST_P(SpansRefused, EverythingIsUndone) {
  Pair pair(GetParam());
  pair.Run(
      [&](Side& side) {
        Segments memory(3, 3);
        pair.SendLookup(side.exported->Find(memory.at(), 3 * kChunk, 1));
        pair.LetOtherWork();
        EXPECT_EQ(side.Ask(memory.at(), 3 * kChunk, 1), ExportStatus::kRefused);
      },
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        soft::CUdeviceptr first = 0;
        soft::softCudaSpare(1);
        EXPECT_EQ(soft::cuMemAddressReserve(&first, kChunk, 0, 0, 0), soft::kCudaSuccess);
        EXPECT_EQ(soft::cuMemAddressFree(first, kChunk), soft::kCudaSuccess);
        soft::softCudaSpare(-1);
        pair.MeetAndUpdate(side);
        EXPECT_EQ(pair.Resolved(side), 0U);
        EXPECT_EQ(OpenDescriptors(), before);
        soft::CUdeviceptr second = 0;
        EXPECT_EQ(soft::cuMemAddressReserve(&second, kChunk, 0, 0, 0), soft::kCudaSuccess);
        EXPECT_EQ(second, first) << "addresses are free again";
        pair.Meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Each, SpansRefused,
                         ::testing::Values("cuMemImportFromShareableHandle:2",
                                           "cuMemAddressReserve:1", "cuMemMap:1", "cuMemMap:3",
                                           "cuMemSetAccess:1"));

// More chunks than fit into the socket.
TEST(Spans, AFullSocketIsTriedAgain) {
  constexpr size_t kChunks = 12 * ChunkMessage::kMaxChunks;
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(kChunks, kChunks);
        const size_t before = OpenDescriptors();
        EXPECT_EQ(side.Ask(memory.at(), kChunks * kChunk, 1), ExportStatus::kPending);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
        EXPECT_TRUE(soft::Soon(
            [&] { return side.Ask(memory.at(), kChunks * kChunk, 1) == ExportStatus::kMapped; }));
        EXPECT_EQ(OpenDescriptors(), before);
        pair.number(2) = 1;
        pair.Meet();  // the peer counts the memory before it is freed
      },
      [&](Side& side) {
        pair.Meet();
        const std::atomic_ref<int> over(pair.number(2));
        EXPECT_TRUE(soft::Soon([&] {
          side.imported->Update(&IsQuiet);
          return over.load() != 0;
        }));
        EXPECT_EQ(HeldMemory(), kChunks);
        pair.Meet();
      });
}

TEST(Spans, ThereIsRoomForSoMany) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        constexpr size_t kMany = RankRecord::kExports + 1;
        // There are holes between the chunks.
        Segments memory(2 * kMany, 0);
        for (size_t i = 0; i < kMany; ++i) {
          memory.Map(2 * i);
          EXPECT_EQ(side.Ask(memory.at(2 * i * kChunk), kChunk, 1),
                    i + 1 == kMany ? ExportStatus::kTableFull : ExportStatus::kPending);
        }
        memory.Unmap(0);
        side.exported->WithdrawFreed();
        side.exported->WithdrawStale(Nobody);
        EXPECT_EQ(side.Ask(memory.at(2 * (kMany - 1) * kChunk), kChunk, 1), ExportStatus::kPending);
      },
      [](Side&) {});
}

TEST(Spans, MemoryOutlivesTheRankThatOfferedIt) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(2, 2);
        memory.Write(4);
        pair.SendLookup(side.exported->Find(memory.at(), 2 * kChunk, 1));
        pair.Meet();
        raise(SIGKILL);
      },
      [&](Side& side) {
        pair.Meet();
        EXPECT_TRUE(soft::Soon([&] { return !side.segment->IsAlive(0); }));
        side.imported->Update(&IsQuiet);
        EXPECT_EQ(Fetch(pair.Resolved(side), 2 * kChunk), Pattern(2 * kChunk, 4));
      },
      0);
}

TEST(Spans, ARankThatHasEndedGetsNothing) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        EXPECT_TRUE(soft::Soon([&] { return !side.segment->IsAlive(1); }));
        EXPECT_EQ(side.mailbox->Send(1, {}, {}), Mailbox::SendResult::kGone);
        const size_t before = OpenDescriptors();
        Segments memory(2, 2);
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kPending);
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kRefused);
        EXPECT_EQ(OpenDescriptors(), before + 2);
      },
      [](Side&) { raise(SIGKILL); }, 1);
}

TEST(Spans, LettersOfStrangersAreThrownAway) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(2, 2);
        pair.SendLookup(side.exported->Find(memory.at(), 2 * kChunk, 1));
        ++side.record(0).process.low;
        pair.LetOtherWork();
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kPending);
      },
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        pair.MeetAndUpdate(side);
        EXPECT_EQ(pair.Resolved(side), 0U);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
      });
}

// A peer's claims about its memory are not trusted: no address outside of the mapping is returned.
TEST(Spans, NothingBeyondAPeersMemoryIsReached) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(2, 2);
        const soft::CUdeviceptr plain = soft::Fill(kChunk, 3);
        pair.SendLookup(side.exported->Find(memory.at(), 2 * kChunk, 1));
        pair.number(2) = static_cast<int>(side.exported->Find(plain, kChunk, 1).number);
        // Like a damaged or forged record.
        for (ExportEntry& share : side.record(0).exports) {
          if (share.number.load() != 0 && share.chunks == 0) share.bytes = UINT64_MAX;
        }
        pair.LetOtherWork();
      },
      [&](Side& side) {
        pair.MeetAndUpdate(side);
        const auto chunks = static_cast<uint64_t>(pair.number(0));
        EXPECT_NE(side.imported->Resolve(chunks, 0, 2 * kChunk), 0U);
        EXPECT_NE(side.imported->Resolve(chunks, 2 * kChunk - 1, 1), 0U);
        EXPECT_EQ(side.imported->Resolve(chunks, 0, 2 * kChunk + 1), 0U);
        EXPECT_EQ(side.imported->Resolve(chunks, 1, 2 * kChunk), 0U);
        EXPECT_EQ(side.imported->Resolve(chunks, UINT64_MAX, 2), 0U);
        const auto plain = static_cast<uint64_t>(pair.number(2));
        EXPECT_NE(side.imported->Resolve(plain, 0, kChunk), 0U);
        EXPECT_EQ(side.imported->Resolve(plain, 0, kChunk + 1), 0U);
        pair.Meet();
      });
}

// An entry that claims more chunks than the limit is refused.
TEST(Spans, MoreChunksThanThereMayBeAreRefused) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(2, 2);
        pair.SendLookup(side.exported->Find(memory.at(), 2 * kChunk, 1));
        for (ExportEntry& share : side.record(0).exports) {
          if (share.number.load() != 0) share.chunks = UINT32_MAX;
        }
        pair.LetOtherWork();
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kRefused);
      },
      [&](Side& side) {
        pair.MeetAndUpdate(side);
        EXPECT_EQ(pair.Resolved(side), 0U);
        pair.Meet();
      });
}

// The application's mapping is accessible to its own GPU only, and this must not change.
TEST(Spans, TwoRanksOfOneProcessMapChunksTwice) {
  soft::Ranks one(1);
  one.Run([](int) {
    soft::UseGpu(1);
    Side second("alone", 0);
    soft::UseGpu(0);
    Side first("alone", 1);
    second.Meet(1, ImportedMemory::Kind::kDirect);
    Segments memory(3, 3);
    memory.Write(6);
    const ExportLookup found = first.exported->Find(memory.at(), 3 * kChunk, 0);
    EXPECT_EQ(found.status, ExportStatus::kPending);
    second.imported->Update(&IsQuiet);
    EXPECT_EQ(first.Ask(memory.at(), 3 * kChunk, 0), ExportStatus::kMapped);
    const DeviceAddress there = second.imported->Resolve(found.number, found.offset, 3 * kChunk);
    EXPECT_NE(there, memory.at());
    soft::UseGpu(1);
    EXPECT_EQ(Fetch(there, 3 * kChunk), Pattern(3 * kChunk, 6));
    const soft::CUdeviceptr plain = soft::Fill(kChunk, 2);
    EXPECT_EQ(second.exported->Find(plain, kChunk, 1).status, ExportStatus::kPending);
    soft::UseGpu(0);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
