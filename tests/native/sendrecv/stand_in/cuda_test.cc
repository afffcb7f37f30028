// SPDX-License-Identifier: Apache-2.0
//
// Tests of the CUDA stand-in in one process. Each test has its own process.
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::soft {
namespace {

void Alone(const std::function<void()>& body) {
  Ranks one(1);
  one.Run([&](int) { body(); });
}

uint32_t* Pinned() {
  void* pointer = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&pointer, 4096, 0), kCudaSuccess);
  return static_cast<uint32_t*>(pointer);
}

void Store(uint32_t* word, uint32_t value) {
  std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
}

CUdeviceptr At(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

TEST(SoftCuda, NothingIsThereBeforeItIsInitialised) {
  Alone([] {
    int count = 0;
    EXPECT_EQ(cuDeviceGetCount(&count), kNotInitialized);
    setenv("SOFT_CUDA_GPUS", "3", 1);
    ASSERT_EQ(cuInit(0), kCudaSuccess);
    ASSERT_EQ(cuDeviceGetCount(&count), kCudaSuccess);
    EXPECT_EQ(count, 3);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, 1), kInvalidContext);
  });
}

TEST(SoftCuda, CopiesGoThereAndBackInAnyPieces) {
  Alone([] {
    UseGpu(0);
    for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
      const CUdeviceptr from = Fill(bytes, 7);
      const CUdeviceptr to = Fill(bytes, -1);
      const CUstream stream = NewStream();
      ASSERT_EQ(cuMemcpyDtoDAsync_v2(to, from, bytes, stream), kCudaSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(Fetch(to, bytes), Pattern(bytes, 7));
    }
  });
}

TEST(SoftCuda, AStreamWaitsForAValueAndAnEventForTheStream) {
  Alone([] {
    UseGpu(0);
    uint32_t* const word = Pinned();
    const CUstream first = NewStream();
    const CUstream second = NewStream();
    CUevent event = nullptr;
    ASSERT_EQ(cuEventCreate(&event, 2), kCudaSuccess);
    // The comparison is cyclic: 2 comes after 0xFFFFFFFE.
    Store(word, 0xFFFFFFFE);
    ASSERT_EQ(cuStreamWaitValue32_v2(first, At(word), 2, kWaitGeq), kCudaSuccess);
    ASSERT_EQ(cuEventRecord(event, first), kCudaSuccess);
    ASSERT_EQ(cuStreamWaitEvent(second, event, 0), kCudaSuccess);
    ASSERT_EQ(cuStreamWriteValue32_v2(second, At(word + 1), 9, 0), kCudaSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(cuStreamQuery(first), kNotReady);
    EXPECT_EQ(cuEventQuery(event), kNotReady);
    EXPECT_EQ(std::atomic_ref<uint32_t>(word[1]).load(), 0U);
    Store(word, 2);
    ASSERT_EQ(cuStreamSynchronize(second), kCudaSuccess);
    EXPECT_EQ(std::atomic_ref<uint32_t>(word[1]).load(), 9U);
    EXPECT_EQ(cuEventQuery(event), kCudaSuccess);
  });
}

TEST(SoftCuda, TheLegacyStreamWaitsForBlockingStreamsAlone) {
  Alone([] {
    UseGpu(0);
    uint32_t* const word = Pinned();
    CUstream blocking = nullptr;
    ASSERT_EQ(cuStreamCreate(&blocking, 0), kCudaSuccess);
    ASSERT_EQ(cuStreamWaitValue32_v2(NewStream(), At(word), 1, kWaitGeq), kCudaSuccess);
    const CUdeviceptr to = Fill(64, 1);
    EXPECT_EQ(Fetch(to, 64), Pattern(64, 1));
    ASSERT_EQ(cuStreamWaitValue32_v2(blocking, At(word), 1, kWaitGeq), kCudaSuccess);
    ASSERT_EQ(cuMemsetD8Async(to, 3, 64, nullptr), kCudaSuccess);
    EXPECT_EQ(cuStreamQuery(nullptr), kNotReady);
    Store(word, 1);
    EXPECT_EQ(cuCtxSynchronize(), kCudaSuccess);
    EXPECT_EQ(Fetch(to, 64), std::vector<uint8_t>(64, 3));
  });
}

TEST(SoftCuda, StreamsOfOneQueueWaitForEachOther) {
  Alone([] {
    setenv("SOFT_CUDA_QUEUES", "1", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    UseGpu(0);
    uint32_t* const word = Pinned();
    const CUstream first = NewStream();
    const CUstream second = NewStream();
    ASSERT_EQ(cuStreamWaitValue32_v2(first, At(word), 1, kWaitEq), kCudaSuccess);
    ASSERT_EQ(cuStreamWriteValue32_v2(second, At(word + 1), 1, 0), kCudaSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(cuStreamQuery(second), kNotReady);
    Store(word, 1);
    EXPECT_EQ(cuCtxSynchronize(), kCudaSuccess);
  });
}

TEST(SoftCuda, FreeingWaitsForTheGpu) {
  Alone([] {
    UseGpu(0);
    uint32_t* const word = Pinned();
    const CUdeviceptr address = Fill(64, 1);
    ASSERT_EQ(cuStreamWaitValue32_v2(NewStream(), At(word), 1, kWaitGeq), kCudaSuccess);
    std::atomic<bool> freed{false};
    std::thread other([&] {
      EXPECT_EQ(cuMemFree_v2(address), kCudaSuccess);
      freed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(freed);
    Store(word, 1);
    other.join();
    EXPECT_TRUE(freed);
  });
}

TEST(SoftCuda, AnAddressIsGivenAgainWithAnotherNumber) {
  Alone([] {
    UseGpu(1);
    unsigned long long before = 0;
    unsigned long long after = 0;
    const CUdeviceptr first = Fill(4 << 20, 1);
    ASSERT_EQ(cuPointerGetAttribute(&before, kPointerBufferId, first + 5), kCudaSuccess);
    ASSERT_EQ(cuMemFree_v2(first), kCudaSuccess);
    EXPECT_EQ(cuPointerGetAttribute(&after, kPointerBufferId, first), kInvalidValue);
    const CUdeviceptr second = Fill(4 << 20, 1);
    EXPECT_EQ(first, second);
    ASSERT_EQ(cuPointerGetAttribute(&after, kPointerBufferId, second), kCudaSuccess);
    EXPECT_NE(before, after);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    ASSERT_EQ(cuMemGetAddressRange_v2(&base, &bytes, second + 100), kCudaSuccess);
    EXPECT_EQ(base, second);
    EXPECT_EQ(bytes, size_t{4} << 20);
    int ordinal = -1;
    ASSERT_EQ(cuPointerGetAttribute(&ordinal, kPointerDeviceOrdinal, second), kCudaSuccess);
    EXPECT_EQ(ordinal, 1);
    unsigned type = 9;
    int attribute = kPointerMemoryType;
    void* out = &type;
    ASSERT_EQ(cuPointerGetAttributes(1, &attribute, &out, At(&type)), kCudaSuccess);
    EXPECT_EQ(type, 0U);
  });
}

TEST(SoftCuda, ACopyOfNoMemoryEndsTheContext) {
  Alone([] {
    UseGpu(0);
    const CUdeviceptr address = Fill(1 << 20, 1);
    const CUstream stream = NewStream();
    ASSERT_EQ(cuMemcpyDtoDAsync_v2(address, address + (1 << 19), 1 << 20, stream), kCudaSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream), kIllegalAddress);
    EXPECT_EQ(cuMemsetD8Async(address, 0, 1, stream), kIllegalAddress);
    UseGpu(1);
    EXPECT_EQ(cuCtxSynchronize(), kCudaSuccess);
  });
}

TEST(SoftCuda, WhatIsGoneIsRefused) {
  Alone([] {
    UseGpu(0);
    const CUstream stream = NewStream();
    ASSERT_EQ(cuStreamDestroy_v2(stream), kCudaSuccess);
    EXPECT_EQ(cuStreamQuery(stream), kInvalidHandle);
    EXPECT_EQ(cuStreamDestroy_v2(stream), kInvalidHandle);
    static uint32_t words[2048];
    const CUstream other = NewStream();
    EXPECT_EQ(cuStreamWriteValue32_v2(other, At(words), 1, 0), kInvalidValue);
    ASSERT_EQ(cuMemHostRegister_v2(words, sizeof words, 0), kCudaSuccess);
    EXPECT_EQ(cuMemHostRegister_v2(words + 1, 8, 0), kHostMemoryAlreadyRegistered);
    EXPECT_EQ(cuStreamWriteValue32_v2(other, At(words), 1, 0), kCudaSuccess);
    EXPECT_EQ(cuStreamSynchronize(other), kCudaSuccess);
    ASSERT_EQ(cuMemHostUnregister(words), kCudaSuccess);
    EXPECT_EQ(cuMemHostUnregister(words), kHostMemoryNotRegistered);
  });
}

TEST(SoftCuda, LacksAndRefusesWhatTheEnvironmentNames) {
  Alone([] {
    setenv("SOFT_CUDA_LACKS", "memops,ipc", 1);
    setenv("SOFT_CUDA_REFUSE", "cuMemAlloc:2", 1);
    UseGpu(0);
    int value = 1;
    ASSERT_EQ(cuDeviceGetAttribute(&value, 122, 0), kCudaSuccess);
    EXPECT_EQ(value, 0);
    ASSERT_EQ(cuDeviceGetAttribute(&value, 102, 0), kCudaSuccess);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(cuStreamWriteValue32_v2(NewStream(), At(Pinned()), 1, 0), kNotSupported);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, 64), kCudaSuccess);
    EXPECT_EQ(cuMemAlloc_v2(&address, 64), kOutOfMemory);
    EXPECT_EQ(cuMemAlloc_v2(&address, 64), kCudaSuccess);
    CUipcMemHandle handle;
    EXPECT_EQ(cuIpcGetMemHandle(&handle, address), kNotSupported);
  });
}

TEST(SoftCuda, FunctionsAreFoundByPlainNames) {
  Alone([] {
    void* function = nullptr;
    int status = -1;
    ASSERT_EQ(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status), kCudaSuccess);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(function, reinterpret_cast<void*>(&cuMemAlloc_v2));
    EXPECT_EQ(cuGetProcAddress("cuNothing", &function, 12000, 0), kNotFound);
    EXPECT_EQ(function, nullptr);
  });
}

TEST(SoftCuda, AGraphDoesAgainWhatWasCapturedInTwoStreams) {
  Alone([] {
    UseGpu(0);
    const CUdeviceptr from = Fill(64, 1);
    const CUdeviceptr to = Fill(64, -1);
    const CUstream stream = NewStream();
    const CUstream side = NewStream();
    CUevent fork = nullptr;
    CUevent join = nullptr;
    ASSERT_EQ(cuEventCreate(&fork, 2), kCudaSuccess);
    ASSERT_EQ(cuEventCreate(&join, 2), kCudaSuccess);
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, 1), kCudaSuccess);
    ASSERT_EQ(cuEventRecord(fork, stream), kCudaSuccess);
    ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), kCudaSuccess);
    int status = 0;
    ASSERT_EQ(cuStreamIsCapturing(side, &status), kCudaSuccess);
    EXPECT_EQ(status, 1);
    ASSERT_EQ(cuMemcpyDtoDAsync_v2(to, from, 64, side), kCudaSuccess);
    ASSERT_EQ(cuEventRecord(join, side), kCudaSuccess);
    ASSERT_EQ(cuStreamWaitEvent(stream, join, 0), kCudaSuccess);
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), kCudaSuccess);
    EXPECT_EQ(Fetch(to, 64), std::vector<uint8_t>(64, 0xEE));
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), kCudaSuccess);
    for (int seed = 2; seed < 4; ++seed) {
      ASSERT_EQ(cuMemcpyHtoD_v2(from, Pattern(64, seed).data(), 64), kCudaSuccess);
      ASSERT_EQ(cuGraphLaunch(exec, stream), kCudaSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(Fetch(to, 64), Pattern(64, seed));
    }
    EXPECT_EQ(cuGraphExecDestroy(exec), kCudaSuccess);
    EXPECT_EQ(cuGraphDestroy(graph), kCudaSuccess);
  });
}

TEST(SoftCuda, ACaptureForbidsUnsafeCallsToOthers) {
  Alone([] {
    UseGpu(0);
    const CUstream stream = NewStream();
    CUgraph graph = nullptr;
    CUdeviceptr address = 0;
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, kCaptureGlobal), kCudaSuccess);
    std::thread([&] {
      UseGpu(0);
      int mode = kCaptureRelaxed;
      ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), kCudaSuccess);
      EXPECT_EQ(cuMemAlloc_v2(&address, 16), kCudaSuccess);
    }).join();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), kCudaSuccess);
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), kCudaSuccess);
    std::thread([&] {
      UseGpu(0);
      EXPECT_EQ(cuMemAlloc_v2(&address, 16), kCudaSuccess);
    }).join();
    EXPECT_EQ(cuMemAlloc_v2(&address, 16), kStreamCaptureUnsupported);
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), kStreamCaptureInvalidated);
    EXPECT_EQ(cuMemAlloc_v2(&address, 16), kCudaSuccess);
  });
}

TEST(SoftCuda, SynchronisingEndsACapture) {
  Alone([] {
    UseGpu(0);
    const CUstream stream = NewStream();
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, 1), kCudaSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream), kStreamCaptureUnsupported);
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), kStreamCaptureInvalidated);
    EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
  });
}

}  // namespace
}  // namespace nccltune::soft
