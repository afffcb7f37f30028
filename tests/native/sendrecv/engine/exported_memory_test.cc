// SPDX-License-Identifier: Apache-2.0
// Memory with legacy handles, and the limit of exported entries.
#include "sendrecv/memory/exported_memory.h"
#include "sendrecv/engine/sharing.h"
#include "sendrecv/memory/imported_memory.h"
#include "sendrecv/peers/segment.h"
#include "sendrecv/stand_in/processes.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kBytes = (size_t{3} << 20) + 100;

TEST(ExportedMemory, PlainMemoryIsReachedWhenThePeerHasLooked) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        const soft::CUdeviceptr memory = soft::Fill(kBytes, 5);
        const ExportLookup found = side.exported->Find(memory + 1000, kBytes - 1000, 1);
        EXPECT_EQ(found.status, ExportStatus::kPending);
        EXPECT_EQ(found.offset, 1000U);
        pair.SendLookup(found);
        pair.LetOtherWork();
        EXPECT_EQ(side.Ask(memory, kBytes, 1), ExportStatus::kMapped);
        EXPECT_EQ(side.Ask(memory, kBytes + 1, 1), ExportStatus::kNoMemory);
        EXPECT_EQ(side.Ask(memory, kBytes, 2), ExportStatus::kPending);
        EXPECT_EQ(soft::cuMemFree_v2(memory), soft::kCudaSuccess);
        side.exported->WithdrawFreed();
        pair.LetOtherWork();
      },
      [&](Side& side) {
        pair.Meet();
        EXPECT_EQ(pair.Resolved(side), 0U);
        side.imported->Update(&IsQuiet);
        const std::vector<uint8_t> right = soft::Pattern(kBytes, 5);
        EXPECT_EQ(soft::Fetch(pair.Resolved(side), kBytes - 1000),
                  std::vector<uint8_t>(right.begin() + 1000, right.end()));
        pair.LetOtherWork();
        side.imported->Update(&IsQuiet);
        EXPECT_EQ(pair.Resolved(side), 0U);
        // Closing the handle would wait for the GPU, so it stays open.
        EXPECT_EQ(HeldMemory(), 1U);
        side.imported.reset();
        EXPECT_EQ(HeldMemory(), 0U);
        pair.Meet();
      });
}

TEST(ExportedMemory, OfWhatPeersHaveFreedSoMuchStaysMapped) {
  constexpr size_t kMany = size_t{600} << 20;
  Pair pair;
  pair.Run(
      [&](Side& side) {
        for (int turn = 0; turn < 3; ++turn) {
          soft::CUdeviceptr memory = 0;
          EXPECT_EQ(soft::cuMemAlloc_v2(&memory, kMany), soft::kCudaSuccess);
          EXPECT_EQ(side.Ask(memory, kMany, 1), ExportStatus::kPending);
          pair.LetOtherWork();
          EXPECT_EQ(side.Ask(memory, kMany, 1),
                    turn < 2 ? ExportStatus::kMapped : ExportStatus::kPending);
          pair.LetOtherWork();
          EXPECT_EQ(side.Ask(memory, kMany, 1), ExportStatus::kMapped);
          EXPECT_EQ(soft::cuMemFree_v2(memory), soft::kCudaSuccess);
          side.exported->WithdrawFreed();
          pair.LetOtherWork();
        }
      },
      [&](Side& side) {
        for (const size_t held : {size_t{1}, size_t{2}, size_t{1}}) {
          pair.Meet();
          side.imported->Update(&IsBusy);
          pair.LetOtherWork();
          side.imported->Update(&IsQuiet);
          EXPECT_EQ(HeldMemory(), held);
          pair.LetOtherWork();
          side.imported->Update(&IsBusy);
          pair.Meet();
        }
      });
}

TEST(ExportedMemory, WhatThePeerCannotMapStaysWithNccl) {
  Pair pair("cuIpcOpenMemHandle:1");
  pair.Run(
      [&](Side& side) {
        const soft::CUdeviceptr memory = soft::Fill(kBytes, 5);
        EXPECT_EQ(side.Ask(memory, kBytes, 1), ExportStatus::kPending);
        pair.LetOtherWork();
        EXPECT_EQ(side.Ask(memory, kBytes, 1), ExportStatus::kRefused);
      },
      [&](Side& side) {
        pair.MeetAndUpdate(side);
        pair.Meet();
      });
}

TEST(ExportedMemory, ThereIsRoomForSoMany) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        std::vector<soft::CUdeviceptr> all(RankRecord::kExports + 1);
        for (soft::CUdeviceptr& each : all) {
          EXPECT_EQ(soft::cuMemAlloc_v2(&each, 4096), soft::kCudaSuccess);
          EXPECT_EQ(side.Ask(each, 4096, 1),
                    &each == &all.back() ? ExportStatus::kTableFull : ExportStatus::kPending);
        }
        EXPECT_EQ(soft::cuMemFree_v2(all[7]), soft::kCudaSuccess);
        EXPECT_EQ(side.Ask(all.back(), 4096, 1), ExportStatus::kPending);
      },
      [](Side&) {});
}

// An allocation at the address of a freed one gets a new entry, and the old entry becomes free.
TEST(ExportedMemory, AnAddressThatIsUsedAgainIsOtherMemory) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        soft::CUdeviceptr before = 0;
        uint64_t number = 0;
        for (size_t turn = 0; turn <= RankRecord::kExports; ++turn) {
          soft::CUdeviceptr memory = 0;
          ASSERT_EQ(soft::cuMemAlloc_v2(&memory, kBytes), soft::kCudaSuccess);
          if (turn != 0) {
            ASSERT_EQ(memory, before) << "the stand-in gives addresses again";
          }
          const ExportLookup found = side.exported->Find(memory, kBytes, 1);
          ASSERT_EQ(found.status, ExportStatus::kPending) << turn;
          EXPECT_NE(found.number, number);
          number = found.number;
          before = memory;
          ASSERT_EQ(soft::cuMemFree_v2(memory), soft::kCudaSuccess);
        }
        side.exported->WithdrawFreed();
        for (const ExportEntry& entry : side.record(0).exports) EXPECT_EQ(entry.number.load(), 0U);
      },
      [](Side&) {});
}

// Memory of a pool has no shareable handle.
TEST(ExportedMemory, MemoryOfAPoolIsNotShared) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        soft::CUstream stream = nullptr;
        soft::CUdeviceptr memory = 0;
        EXPECT_EQ(soft::cuStreamCreate(&stream, soft::kStreamNonBlocking), soft::kCudaSuccess);
        EXPECT_EQ(soft::cuMemAllocAsync(&memory, kBytes, stream), soft::kCudaSuccess);
        EXPECT_EQ(side.Ask(memory, kBytes, 1), ExportStatus::kUnshareable);
        EXPECT_EQ(side.Ask(memory, kBytes, 1), ExportStatus::kUnshareable);
        EXPECT_EQ(side.Ask(0x1000, kBytes, 1), ExportStatus::kNoMemory);
      },
      [](Side&) {});
}

std::atomic<uint64_t>* g_number = nullptr;  // changed during the next call of CUDA
cu::Api g_api;

cu::Result AttributesMeanwhile(unsigned count, const int* attributes, void** values,
                               cu::Pointer pointer) {
  if (g_number != nullptr) ++*g_number;
  g_number = nullptr;
  std::string why;
  return OpenCuda(&why)->PointerGetAttributes(count, attributes, values, pointer);
}

// An exported entry that its owner fills anew while a peer maps it.
TEST(ImportedMemory, AnEntryThatIsFilledAnewMeanwhileIsMappedAnew) {
  soft::Ranks one(1);
  one.Run([](int) {
    soft::UseGpu(0);
    std::string why;
    g_api = *OpenCuda(&why);
    g_api.PointerGetAttributes = &AttributesMeanwhile;
    const auto driver = CudaDriver::OfCurrent(g_api, &why);
    ASSERT_NE(driver, nullptr) << why;
    const auto owner = std::make_unique<RankRecord>();
    ExportEntry& entry = owner->exports[7];
    entry.base = soft::Fill(4096, 1);
    entry.bytes = 4096;
    entry.wanted = PlaceBit(0);
    entry.number = 5;
    ImportedMemory imported(*driver, *owner, 0, ImportedMemory::Kind::kDirect, nullptr, 1);
    g_number = &entry.number;
    ++owner->exports_changed;
    imported.Update([] { return true; });
    EXPECT_EQ(entry.number, 6U);
    EXPECT_EQ(entry.imported, 0U) << "the owner would take the new memory for mapped";
    EXPECT_EQ(imported.Resolve(5, 0, 4096), 0U);
    ++owner->exports_changed;
    imported.Update([] { return true; });
    EXPECT_EQ(entry.imported, PlaceBit(0));
    EXPECT_EQ(imported.Resolve(6, 0, 4096), entry.base);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
