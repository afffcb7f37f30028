// SPDX-License-Identifier: Apache-2.0
//
// Memory with legacy handles, and how many shares there are.
#include "sendrecv/shares.h"

#include <csignal>

#include "sendrecv/engine/sharing.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kBytes = (size_t{3} << 20) + 100;

TEST(Shares, PlainMemoryIsReachedWhenThePeerHasLooked) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        const soft::CUdeviceptr memory = soft::Fill(kBytes, 5);
        const Found found = side.offers->Find(memory + 1000, kBytes - 1000, 1);
        EXPECT_EQ(found.reach, Reach::kNotYet);
        EXPECT_EQ(found.offset, 1000U);
        pair.Tell(found);
        pair.Meet();
        pair.Meet();
        EXPECT_EQ(side.Ask(memory, kBytes, 1), Reach::kReached);
        EXPECT_EQ(side.Ask(memory, kBytes + 1, 1), Reach::kNoMemory);
        EXPECT_EQ(side.Ask(memory, kBytes, 2), Reach::kNotYet);
        EXPECT_EQ(soft::cuMemFree_v2(memory), soft::kCudaSuccess);
        side.offers->Sweep();
        pair.Meet();
        pair.Meet();
      },
      [&](Side& side) {
        pair.Meet();
        EXPECT_EQ(pair.Told(side), 0U);
        side.imports->Look(&IsQuiet);
        const std::vector<uint8_t> right = soft::Pattern(kBytes, 5);
        EXPECT_EQ(soft::Fetch(pair.Told(side), kBytes - 1000),
                  std::vector<uint8_t>(right.begin() + 1000, right.end()));
        pair.Meet();
        pair.Meet();
        side.imports->Look(&IsQuiet);
        EXPECT_EQ(pair.Told(side), 0U);
        // To close a handle would wait.
        EXPECT_EQ(HeldMemory(), 1U);
        side.imports.reset();
        EXPECT_EQ(HeldMemory(), 0U);
        pair.Meet();
      });
}

TEST(Shares, OfWhatPeersHaveFreedSoMuchStaysMapped) {
  constexpr size_t kMany = size_t{600} << 20;
  Pair pair;
  pair.Run(
      [&](Side& side) {
        for (int turn = 0; turn < 3; ++turn) {
          soft::CUdeviceptr memory = 0;
          EXPECT_EQ(soft::cuMemAlloc_v2(&memory, kMany), soft::kCudaSuccess);
          EXPECT_EQ(side.Ask(memory, kMany, 1), Reach::kNotYet);
          pair.Meet();
          pair.Meet();
          EXPECT_EQ(side.Ask(memory, kMany, 1), turn < 2 ? Reach::kReached : Reach::kNotYet);
          pair.Meet();
          pair.Meet();
          EXPECT_EQ(side.Ask(memory, kMany, 1), Reach::kReached);
          EXPECT_EQ(soft::cuMemFree_v2(memory), soft::kCudaSuccess);
          side.offers->Sweep();
          pair.Meet();
          pair.Meet();
        }
      },
      [&](Side& side) {
        for (const size_t held : {size_t{1}, size_t{2}, size_t{1}}) {
          pair.Meet();
          side.imports->Look(&IsBusy);
          pair.Meet();
          pair.Meet();
          side.imports->Look(&IsQuiet);
          EXPECT_EQ(HeldMemory(), held);
          pair.Meet();
          pair.Meet();
          side.imports->Look(&IsBusy);
          pair.Meet();
        }
      });
}

TEST(Shares, WhatThePeerCannotMapStaysWithNccl) {
  Pair pair("cuIpcOpenMemHandle:1");
  pair.Run(
      [&](Side& side) {
        const soft::CUdeviceptr memory = soft::Fill(kBytes, 5);
        EXPECT_EQ(side.Ask(memory, kBytes, 1), Reach::kNotYet);
        pair.Meet();
        pair.Meet();
        EXPECT_EQ(side.Ask(memory, kBytes, 1), Reach::kNever);
      },
      [&](Side& side) {
        pair.Meet();
        side.imports->Look(&IsQuiet);
        pair.Meet();
      });
}

TEST(Shares, ThereIsRoomForSoMany) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        std::vector<soft::CUdeviceptr> all(Card::kShares + 1);
        for (soft::CUdeviceptr& each : all) {
          EXPECT_EQ(soft::cuMemAlloc_v2(&each, 4096), soft::kCudaSuccess);
          EXPECT_EQ(side.Ask(each, 4096, 1),
                    &each == &all.back() ? Reach::kNoRoom : Reach::kNotYet);
        }
        EXPECT_EQ(soft::cuMemFree_v2(all[7]), soft::kCudaSuccess);
        EXPECT_EQ(side.Ask(all.back(), 4096, 1), Reach::kNotYet);
      },
      [](Side&) {});
}

// Of a pool: no handle of any kind.
TEST(Shares, MemoryOfAPoolIsNotShared) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        soft::CUstream stream = nullptr;
        soft::CUdeviceptr memory = 0;
        EXPECT_EQ(soft::cuStreamCreate(&stream, soft::kStreamNonBlocking), soft::kCudaSuccess);
        EXPECT_EQ(soft::cuMemAllocAsync(&memory, kBytes, stream), soft::kCudaSuccess);
        EXPECT_EQ(side.Ask(memory, kBytes, 1), Reach::kUnshared);
        EXPECT_EQ(side.Ask(memory, kBytes, 1), Reach::kUnshared);
        EXPECT_EQ(side.Ask(0x1000, kBytes, 1), Reach::kNoMemory);
      },
      [](Side&) {});
}

}  // namespace
}  // namespace nccltune::sendrecv
