// SPDX-License-Identifier: Apache-2.0
//
// An exported entry that its owner fills anew while a peer maps it.
#include "sendrecv/memory/imported_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "sendrecv/peers/segment.h"
#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

std::atomic<uint64_t>* g_number = nullptr;  // changed during the next call of CUDA
cu::Api g_api;

cu::Result AttributesMeanwhile(unsigned count, const int* attributes, void** values,
                               cu::Pointer pointer) {
  if (g_number != nullptr) ++*g_number;
  g_number = nullptr;
  std::string why;
  return OpenCuda(&why)->PointerGetAttributes(count, attributes, values, pointer);
}

TEST(ImportedMemory, AnEntryThatIsFilledAnewMeanwhileIsMappedAnew) {
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
}

}  // namespace
}  // namespace nccltune::sendrecv
