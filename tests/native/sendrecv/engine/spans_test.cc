// SPDX-License-Identifier: Apache-2.0
//
// Memory that was mapped by hand, in chunks.
#include "sendrecv/spans.h"

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
          const Found found = side.offers->Find(memory.at(kFrom), kLength, 1);
          EXPECT_EQ(found.reach, Reach::kNotYet);
          pair.Tell(found);
          pair.Meet();
          pair.Meet();
          EXPECT_EQ(side.Ask(memory.at(kFrom), kLength, 1), Reach::kReached);
          // Of the same span, as it has what is beside the message.
          const Found other = side.offers->Find(memory.at(), 5 * kChunk, 1);
          EXPECT_EQ(other.reach, Reach::kReached);
          EXPECT_EQ(other.number, found.number);
          EXPECT_EQ(side.Ask(memory.at(4 * kChunk), kChunk + 1, 1), Reach::kNoMemory);
          EXPECT_EQ(side.Ask(memory.at(), kChunk, 2), Reach::kNotYet);
          EXPECT_EQ(side.Ask(memory.at(), kChunk, 2), Reach::kNever) << "nobody is there";
          EXPECT_EQ(InheritedDescriptors(), inherited);
          // The peer's copy.
          pair.Meet();
          EXPECT_EQ(Fetch(memory.at(kFrom), kLength), Pattern(kLength, 9));
        }
        side.offers->Sweep();
        side.offers->Tidy(Nobody);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
        pair.Meet();
      },
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        const size_t inherited = InheritedDescriptors();
        pair.Meet();
        side.imports->Look(&IsQuiet);
        const DeviceAddress there = pair.Told(side);
        EXPECT_EQ(Fetch(there, kLength), Middle(3, 5, kFrom, kLength));
        EXPECT_EQ(HeldMemory(), 5U);
        EXPECT_EQ(OpenDescriptors(), before + 5);
        EXPECT_EQ(InheritedDescriptors(), inherited);
        pair.Meet();
        const std::vector<uint8_t> data = Pattern(kLength, 9);
        EXPECT_EQ(soft::cuMemcpyHtoD_v2(there, data.data(), kLength), soft::kCudaSuccess);
        pair.Meet();
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(pair.Told(side), 0U);
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
        const Found old = side.offers->Find(memory.at(), 4 * kChunk, 1);
        pair.Tell(old);
        pair.Meet();
        pair.Meet();
        memory.Unmap(2);
        memory.Map(2);
        memory.Write(2);
        const Found found = side.offers->Find(memory.at(), 4 * kChunk, 1);
        EXPECT_EQ(found.reach, Reach::kNotYet);
        EXPECT_NE(found.number, old.number);
        // A message may be under way in a part that is as it was.
        side.offers->Tidy([&](uint64_t number) { return number == old.number; });
        pair.Meet();
        pair.Meet();
        side.offers->Tidy(Nobody);
        pair.Tell(found);
        pair.Meet();
        pair.Meet();
        EXPECT_EQ(side.Ask(memory.at(), 4 * kChunk, 1), Reach::kReached);
      },
      [&](Side& side) {
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(Fetch(pair.Told(side), 4 * kChunk), Pattern(4 * kChunk, 1));
        pair.Meet();
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_NE(pair.Told(side), 0U);
        EXPECT_EQ(HeldMemory(), 5U);
        pair.Meet();
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(Fetch(pair.Told(side), 4 * kChunk), Pattern(4 * kChunk, 2));
        EXPECT_EQ(HeldMemory(), 4U) << "of the chunk that is gone";
        pair.Meet();
      });
}

TEST(Spans, WhatWasNotMadeForItIsNotShared) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments hidden(4, 4, 0);
        EXPECT_EQ(side.Ask(hidden.at(100), kChunk, 1), Reach::kUnshared);
        EXPECT_EQ(side.Ask(hidden.at(100), kChunk, 1), Reach::kUnshared);
        // Another at its place is asked anew.
        hidden.Unmap(0);
        Segments shown(4, 4);
        EXPECT_EQ(side.Ask(shown.at(), 4 * kChunk, 1), Reach::kNotYet);
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
        EXPECT_EQ(side.Ask(memory.at(), 3 * kChunk, 1), Reach::kNotYet);
        EXPECT_EQ(OpenDescriptors(), before + 3);
        EXPECT_EQ(side.Ask(memory.at(), 3 * kChunk, 1), Reach::kUnshared);
        EXPECT_EQ(side.Ask(memory.at(2 * kChunk), kChunk, 1), Reach::kNotYet);
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
        pair.Tell(side.offers->Find(memory.at(), 3 * kChunk, 1));
        pair.Meet();
        pair.Meet();
        EXPECT_EQ(side.Ask(memory.at(), 3 * kChunk, 1), Reach::kNever);
      },
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        soft::CUdeviceptr first = 0;
        soft::softCudaSpare(1);
        EXPECT_EQ(soft::cuMemAddressReserve(&first, kChunk, 0, 0, 0), soft::kCudaSuccess);
        EXPECT_EQ(soft::cuMemAddressFree(first, kChunk), soft::kCudaSuccess);
        soft::softCudaSpare(-1);
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(pair.Told(side), 0U);
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

// More than a socket holds.
TEST(Spans, AFullSocketIsTriedAgain) {
  constexpr size_t kChunks = 12 * Letter::kMost;
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(kChunks, kChunks);
        const size_t before = OpenDescriptors();
        EXPECT_EQ(side.Ask(memory.at(), kChunks * kChunk, 1), Reach::kNotYet);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
        EXPECT_TRUE(soft::Soon(
            [&] { return side.Ask(memory.at(), kChunks * kChunk, 1) == Reach::kReached; }));
        EXPECT_EQ(OpenDescriptors(), before);
        pair.number(2) = 1;
      },
      [&](Side& side) {
        pair.Meet();
        const std::atomic_ref<int> over(pair.number(2));
        EXPECT_TRUE(soft::Soon([&] {
          side.imports->Look(&IsQuiet);
          return over.load() != 0;
        }));
        EXPECT_EQ(HeldMemory(), kChunks);
      });
}

TEST(Spans, ThereIsRoomForSoMany) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        constexpr size_t kMany = Card::kShares + 1;
        // With holes between.
        Segments memory(2 * kMany, 0);
        for (size_t i = 0; i < kMany; ++i) {
          memory.Map(2 * i);
          EXPECT_EQ(side.Ask(memory.at(2 * i * kChunk), kChunk, 2),
                    i + 1 == kMany ? Reach::kNoRoom : Reach::kNotYet);
        }
        memory.Unmap(0);
        side.offers->Sweep();
        side.offers->Tidy(Nobody);
        EXPECT_EQ(side.Ask(memory.at(2 * (kMany - 1) * kChunk), kChunk, 1), Reach::kNotYet);
      },
      [](Side&) {});
}

TEST(Spans, MemoryOutlivesTheRankThatOfferedIt) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(2, 2);
        memory.Write(4);
        pair.Tell(side.offers->Find(memory.at(), 2 * kChunk, 1));
        pair.Meet();
        raise(SIGKILL);
      },
      [&](Side& side) {
        pair.Meet();
        EXPECT_TRUE(soft::Soon([&] { return !side.segment->Lives(0); }));
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(Fetch(pair.Told(side), 2 * kChunk), Pattern(2 * kChunk, 4));
      },
      0);
}

TEST(Spans, ARankThatHasEndedGetsNothing) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        EXPECT_TRUE(soft::Soon([&] { return !side.segment->Lives(1); }));
        const size_t before = OpenDescriptors();
        Segments memory(2, 2);
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), Reach::kNotYet);
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), Reach::kNever);
        EXPECT_EQ(OpenDescriptors(), before + 2);
      },
      [](Side&) { raise(SIGKILL); }, 1);
}

TEST(Spans, LettersOfStrangersAreThrownAway) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        Segments memory(2, 2);
        pair.Tell(side.offers->Find(memory.at(), 2 * kChunk, 1));
        side.card(0).process = getpid() + 1;
        pair.Meet();
        pair.Meet();
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), Reach::kNotYet);
      },
      [&](Side& side) {
        const size_t before = OpenDescriptors();
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(pair.Told(side), 0U);
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
      });
}

// The application's mapping is for its own GPU alone, and stays so.
TEST(Spans, TwoRanksOfOneProcessMapChunksTwice) {
  soft::Ranks one(1);
  one.Run([](int) {
    soft::UseGpu(1);
    Side second("alone", 0);
    soft::UseGpu(0);
    Side first("alone", 1);
    second.Meet(1, Imports::Kind::kDirect);
    Segments memory(3, 3);
    memory.Write(6);
    const Found found = first.offers->Find(memory.at(), 3 * kChunk, 0);
    EXPECT_EQ(found.reach, Reach::kNotYet);
    second.imports->Look(&IsQuiet);
    EXPECT_EQ(first.Ask(memory.at(), 3 * kChunk, 0), Reach::kReached);
    const DeviceAddress there = second.imports->Resolve(found.number, found.offset);
    EXPECT_NE(there, memory.at());
    soft::UseGpu(1);
    EXPECT_EQ(Fetch(there, 3 * kChunk), Pattern(3 * kChunk, 6));
    const soft::CUdeviceptr plain = soft::Fill(kChunk, 2);
    EXPECT_EQ(second.offers->Find(plain, kChunk, 1).reach, Reach::kNotYet);
    soft::UseGpu(0);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
