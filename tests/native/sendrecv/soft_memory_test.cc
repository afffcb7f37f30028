// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_memory.h"

#include <gtest/gtest.h>

#include <string>

namespace nccltune::sendrecv {
namespace {

// Returns why a process cannot access the bytes. Empty: it can.
std::string Why(SoftMemory& memory, DeviceAddress address, size_t bytes, int process = 0) {
  std::string why;
  const bool found = memory.Find(process, address, bytes, why) != nullptr;
  EXPECT_EQ(found, why.empty());
  return why;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SoftMemory, EndsWhereTheAllocationEnds) {
  SoftMemory memory;
  memory.Allocate(0, 0, 64);
  const DeviceAddress a = memory.Allocate(0, 3, 100);
  EXPECT_EQ(Why(memory, a, 100), "");
  EXPECT_EQ(Why(memory, a + 99, 1), "");
  const std::string past = Why(memory, a + 90, 17);
  EXPECT_TRUE(Contains(past, "7 bytes past the end of allocation 2")) << past;
  EXPECT_TRUE(Contains(past, "GPU 3")) << past;
  EXPECT_TRUE(Contains(Why(memory, a + 5000, 1), "past the end")) << "far behind";
  EXPECT_EQ(Why(memory, 4096, 1), "nothing is there");
  EXPECT_EQ(memory.Allocate(0, 0, 0), 0u);
}

TEST(SoftMemory, IsReachedByAnotherProcessOnlyWhereThatImportedIt) {
  SoftMemory memory;
  const DeviceAddress a = memory.Allocate(0, 0, 100);
  EXPECT_TRUE(Contains(Why(memory, a, 1, 1), "not reachable: allocation 1"));
  const DeviceAddress there = memory.Import(1, 0, a + 40);
  ASSERT_NE(there, 0u);
  EXPECT_NE(there, a + 40);
  EXPECT_EQ(Why(memory, there, 60, 1), "");
  EXPECT_EQ(Why(memory, there - 40, 100, 1), "");
  EXPECT_TRUE(Contains(Why(memory, there, 61, 1), "1 bytes past the end"));
  // Only the importing process can use the import.
  EXPECT_TRUE(Contains(Why(memory, there, 1, 0), "not reachable"));
  std::string why;
  EXPECT_EQ(memory.Find(1, there, 1, why), memory.Find(0, a + 40, 1, why));
  EXPECT_EQ(memory.Import(1, 1, a), 0u);
}

TEST(SoftMemory, IsNoLongerReachedWhenUnmapped) {
  SoftMemory memory;
  const DeviceAddress a = memory.Allocate(0, 0, 100);
  const DeviceAddress there = memory.Import(1, 0, a);
  EXPECT_FALSE(memory.Unmap(1, there + 1));
  EXPECT_FALSE(memory.Unmap(0, there));
  EXPECT_FALSE(memory.Unmap(0, a));
  EXPECT_TRUE(memory.Unmap(1, there));
  EXPECT_FALSE(memory.Unmap(1, there));
  EXPECT_TRUE(
      Contains(Why(memory, there, 1, 1), "allocation 1 (100 bytes on GPU 0, process 0) was unm"));
  EXPECT_EQ(Why(memory, a, 100), "");
}

TEST(SoftMemory, ThatWasFreedIsNamedToAllWhoUseIt) {
  SoftMemory memory;
  const DeviceAddress a = memory.Allocate(0, 0, 100);
  const DeviceAddress there = memory.Import(1, 0, a);
  EXPECT_FALSE(memory.Free(1, there));
  EXPECT_FALSE(memory.Free(1, a));
  EXPECT_FALSE(memory.Free(0, a + 1));
  EXPECT_TRUE(memory.Free(0, a));
  EXPECT_FALSE(memory.Free(0, a));
  EXPECT_TRUE(
      Contains(Why(memory, a, 1), "allocation 1 (100 bytes on GPU 0, process 0) was freed"));
  EXPECT_TRUE(Contains(Why(memory, there, 1, 1), "allocation 1"));
  EXPECT_EQ(memory.Import(1, 0, a), 0u);
}

TEST(SoftMemory, OutlivesItsProcessForWhoImportedIt) {
  SoftMemory memory;
  const DeviceAddress a = memory.Allocate(0, 0, 100);
  const DeviceAddress there = memory.Import(1, 0, a);
  memory.Kill(0);
  EXPECT_EQ(Why(memory, there, 100, 1), "");
  EXPECT_TRUE(Contains(Why(memory, a, 1), "allocation 1"));
  EXPECT_EQ(memory.Import(2, 0, a), 0u);
}

TEST(SoftMemory, AtAnAddressThatWasFreedIsOtherMemory) {
  SoftMemory memory;
  const DeviceAddress a = memory.Allocate(0, 0, 100);
  const DeviceAddress there = memory.Import(1, 0, a);
  EXPECT_FALSE(memory.AllocateAt(0, 0, a, 50)) << "not free";
  ASSERT_TRUE(memory.Free(0, a));
  EXPECT_FALSE(memory.AllocateAt(1, 0, a, 50)) << "of another process";
  EXPECT_FALSE(memory.AllocateAt(0, 0, a + 60, 50)) << "too long";
  EXPECT_TRUE(memory.AllocateAt(0, 1, a + 40, 50));
  EXPECT_EQ(Why(memory, a + 40, 50), "");
  EXPECT_TRUE(Contains(Why(memory, a + 40, 51), "past the end of allocation 2"));
  EXPECT_TRUE(Contains(Why(memory, there, 1, 1), "allocation 1"))
      << "an old import is of old memory";
}

}  // namespace
}  // namespace nccltune::sendrecv
