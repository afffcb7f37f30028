// SPDX-License-Identifier: Apache-2.0
//
// Tests of the CUDA stand-in's memory in two processes.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::soft {
namespace {

constexpr size_t kBytes = (size_t{5} << 20) + 12;

TEST(SoftCudaShared, AnImportHoldsTheOwnersBytes) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    Shared& shared = two.shared();
    CUdeviceptr mine = 0;
    if (rank == 0) {
      mine = Fill(kBytes, 3);
      ASSERT_EQ(cuIpcGetMemHandle(&shared.handle, mine + 1000), kCudaSuccess);
      CUdeviceptr own = 0;
      EXPECT_EQ(cuIpcOpenMemHandle_v2(&own, shared.handle, kIpcLazyEnablePeerAccess),
                kInvalidContext);
    }
    two.Meet();
    if (rank == 1) {
      CUdeviceptr first = 0;
      CUdeviceptr second = 0;
      ASSERT_EQ(cuIpcOpenMemHandle_v2(&first, shared.handle, kIpcLazyEnablePeerAccess),
                kCudaSuccess);
      ASSERT_EQ(cuIpcOpenMemHandle_v2(&second, shared.handle, kIpcLazyEnablePeerAccess),
                kCudaSuccess);
      EXPECT_EQ(first, second);
      EXPECT_EQ(Fetch(first, kBytes), Pattern(kBytes, 3));
      EXPECT_EQ(cuMemFree_v2(first), kInvalidValue);
      CUipcMemHandle again;
      EXPECT_EQ(cuIpcGetMemHandle(&again, first), kInvalidValue);
      const CUdeviceptr from = Fill(kBytes, 4);
      const CUstream stream = NewStream();
      ASSERT_EQ(cuMemcpyAsync(first, from, kBytes, stream), kCudaSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(cuIpcCloseMemHandle(first), kCudaSuccess);
      EXPECT_EQ(cuIpcCloseMemHandle(first), kCudaSuccess);
      EXPECT_EQ(cuIpcCloseMemHandle(first), kInvalidValue);
    }
    two.Meet();
    if (rank == 0) {
      EXPECT_EQ(Fetch(mine, kBytes), Pattern(kBytes, 4));
    }
  });
}

TEST(SoftCudaShared, ACopyIntoFreedMemoryIsFound) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    Shared& shared = two.shared();
    CUdeviceptr address = 0;
    if (rank == 0) {
      address = Fill(4096, 3);
      ASSERT_EQ(cuIpcGetMemHandle(&shared.handle, address), kCudaSuccess);
    }
    two.Meet();
    if (rank == 1) {
      ASSERT_EQ(cuIpcOpenMemHandle_v2(&address, shared.handle, kIpcLazyEnablePeerAccess),
                kCudaSuccess);
    }
    two.Meet();
    if (rank == 0) {
      ASSERT_EQ(cuMemFree_v2(address), kCudaSuccess);
    }
    two.Meet();
    if (rank == 1) {
      EXPECT_EQ(cuMemsetD8_v2(address, 0, 16), kIllegalAddress);
    }
  });
}

// Repeated pushes between two processes, with the flags ready and done, as send/recv uses them.
TEST(SoftCudaShared, ValuesOrderCopiesOfTwoProcesses) {
  Ranks two(2);
  two.Run([&](int rank) {
    constexpr uint32_t kRounds = 20;
    UseGpu(rank);
    Shared& shared = two.shared();
    ASSERT_EQ(cuMemHostRegister_v2(shared.page, sizeof shared.page, 0), kCudaSuccess);
    CUdeviceptr ready = 0;
    ASSERT_EQ(cuMemHostGetDevicePointer_v2(&ready, shared.page, 0), kCudaSuccess);
    const CUdeviceptr done = ready + 64;
    const CUstream stream = NewStream();
    if (rank == 0) {
      const CUdeviceptr mine = Fill(kBytes, -1);
      const std::vector<uint8_t> sent[] = {Pattern(kBytes, 0), Pattern(kBytes, 1)};
      ASSERT_EQ(cuIpcGetMemHandle(&shared.handle, mine), kCudaSuccess);
      two.Meet();
      for (uint32_t round = 1; round <= kRounds; ++round) {
        ASSERT_EQ(cuMemsetD8Async(mine, 0xEE, kBytes, stream), kCudaSuccess);
        ASSERT_EQ(cuStreamWriteValue32_v2(stream, ready, round, 0), kCudaSuccess);
        ASSERT_EQ(cuStreamWaitValue32_v2(stream, done, round, kWaitGeq), kCudaSuccess);
        ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
        EXPECT_EQ(Fetch(mine, kBytes), sent[round % 2]);
      }
    } else {
      const CUdeviceptr from[] = {Fill(kBytes, 0), Fill(kBytes, 1)};
      two.Meet();
      CUdeviceptr to = 0;
      ASSERT_EQ(cuIpcOpenMemHandle_v2(&to, shared.handle, kIpcLazyEnablePeerAccess), kCudaSuccess);
      for (uint32_t round = 1; round <= kRounds; ++round) {
        CUstreamBatchMemOpParams wait = {};
        wait.operation = kOpWaitValue32;
        wait.address = ready;
        wait.value = round;
        ASSERT_EQ(cuStreamBatchMemOp_v2(stream, 1, &wait, 0), kCudaSuccess);
        ASSERT_EQ(cuMemcpyDtoDAsync_v2(to, from[round % 2], kBytes, stream), kCudaSuccess);
        ASSERT_EQ(cuStreamWriteValue32_v2(stream, done, round, 0), kCudaSuccess);
      }
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    }
    two.Meet();
  });
}

constexpr size_t kPart = size_t{2} << 20;

CUmemAllocationProp OnGpu(int gpu) {
  CUmemAllocationProp prop = {};
  prop.type = 1;
  prop.requestedHandleTypes = 1;
  prop.location = {.type = 1, .id = gpu};
  return prop;
}

// Maps two allocations side by side, like an allocator with expandable segments.
CUdeviceptr MapBoth(const CUmemGenericAllocationHandle (&handles)[2], int gpu) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, 2 * kPart, 0, 0, 0), kCudaSuccess);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(cuMemMap(address + i * kPart, kPart, 0, handles[i], 0), kCudaSuccess);
    EXPECT_EQ(cuMemRelease(handles[i]), kCudaSuccess);
  }
  const CUmemAccessDesc access = {.location = {.type = 1, .id = gpu}, .flags = 3};
  EXPECT_EQ(cuMemSetAccess(address, 2 * kPart, &access, 1), kCudaSuccess);
  return address;
}

TEST(SoftCudaShared, MappedMemoryGoesThroughDescriptors) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    Shared& shared = two.shared();
    CUmemGenericAllocationHandle handles[2] = {};
    CUdeviceptr address = 0;
    if (rank == 0) {
      const CUmemAllocationProp prop = OnGpu(0);
      EXPECT_EQ(cuMemCreate(&handles[0], 1000, &prop, 0), kInvalidValue);
      for (auto& handle : handles) ASSERT_EQ(cuMemCreate(&handle, kPart, &prop, 0), kCudaSuccess);
      address = MapBoth(handles, 0);
      shared.numbers[0] = getpid();
      for (size_t i = 0; i < 2; ++i) {
        CUmemGenericAllocationHandle handle = 0;
        void* const at = reinterpret_cast<void*>(address + i * kPart + 17);
        ASSERT_EQ(cuMemRetainAllocationHandle(&handle, at), kCudaSuccess);
        CUmemAllocationProp got = {};
        ASSERT_EQ(cuMemGetAllocationPropertiesFromHandle(&got, handle), kCudaSuccess);
        EXPECT_EQ(got.requestedHandleTypes, 1);
        ASSERT_EQ(cuMemExportToShareableHandle(&shared.numbers[1 + i], handle, 1, 0), kCudaSuccess);
        ASSERT_EQ(cuMemRelease(handle), kCudaSuccess);
      }
      const std::vector<uint8_t> data = Pattern(2 * kPart, 8);
      ASSERT_EQ(cuMemcpyHtoD_v2(address, data.data(), data.size()), kCudaSuccess);
    }
    two.Meet();
    if (rank == 1) {
      for (size_t i = 0; i < 2; ++i) {
        const std::string path = "/proc/" + std::to_string(shared.numbers[0]) + "/fd/" +
                                 std::to_string(shared.numbers[1 + i]);
        const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd, 0);
        void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
        ASSERT_EQ(cuMemImportFromShareableHandle(&handles[i], shareable, 1), kCudaSuccess);
        close(fd);
      }
      address = MapBoth(handles, 1);
      EXPECT_EQ(Fetch(address + 100, 2 * kPart - 100).back(), Pattern(2 * kPart, 8).back());
      EXPECT_EQ(Fetch(address, 2 * kPart), Pattern(2 * kPart, 8));
    }
    two.Meet();
    EXPECT_EQ(cuMemUnmap(address, kPart + 1), kInvalidValue);
    EXPECT_EQ(cuMemUnmap(address, 2 * kPart), kCudaSuccess);
    EXPECT_EQ(cuMemAddressFree(address, 2 * kPart), kCudaSuccess);
  });
}

// Memory of a pool or of cuMemCreate has no legacy IPC handle.
TEST(SoftCudaShared, OnlyPlainMemoryHasIpcHandles) {
  Ranks one(1);
  one.Run([](int) {
    UseGpu(0);
    CUdeviceptr pooled = 0;
    const CUstream stream = NewStream();
    ASSERT_EQ(cuMemAllocAsync(&pooled, 4096, stream), kCudaSuccess);
    unsigned capable = 9;
    ASSERT_EQ(cuPointerGetAttribute(&capable, kPointerLegacyIpcCapable, pooled), kCudaSuccess);
    EXPECT_EQ(capable, 0U);
    CUipcMemHandle handle;
    EXPECT_EQ(cuIpcGetMemHandle(&handle, pooled), kInvalidValue);
    EXPECT_EQ(cuMemFreeAsync(pooled, stream), kCudaSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(cuPointerGetAttribute(&capable, kPointerLegacyIpcCapable, pooled), kInvalidValue);
  });
}

TEST(SoftCudaShared, WhatIsMappedNeedsAccess) {
  Ranks one(1);
  one.Run([](int) {
    UseGpu(0);
    const CUmemAllocationProp prop = OnGpu(1);
    CUmemGenericAllocationHandle handles[2] = {};
    for (auto& handle : handles) ASSERT_EQ(cuMemCreate(&handle, kPart, &prop, 0), kCudaSuccess);
    const CUdeviceptr address = MapBoth(handles, 1);
    EXPECT_EQ(cuMemsetD8_v2(address, 0, 16), kIllegalAddress);
  });
}

TEST(SoftCudaShared, MemoryOutlivesItsOwnerForWhoImportedIt) {
  Ranks two(2);
  two.Run(
      [&](int rank) {
        UseGpu(rank);
        Shared& shared = two.shared();
        CUdeviceptr address = 0;
        if (rank == 0) {
          address = Fill(kBytes, 3);
          ASSERT_EQ(cuIpcGetMemHandle(&shared.handle, address), kCudaSuccess);
        }
        two.Meet();
        if (rank == 1) {
          ASSERT_EQ(cuIpcOpenMemHandle_v2(&address, shared.handle, kIpcLazyEnablePeerAccess),
                    kCudaSuccess);
        }
        two.Meet();
        if (rank == 0) raise(SIGKILL);
        EXPECT_EQ(Fetch(address, kBytes), Pattern(kBytes, 3));
      },
      0);
}

}  // namespace
}  // namespace nccltune::soft
