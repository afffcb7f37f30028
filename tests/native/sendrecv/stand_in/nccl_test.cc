// SPDX-License-Identifier: Apache-2.0
//
// Tests of the NCCL stand-in, with ranks in processes and with ranks as threads of one process.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::soft {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;

void* At(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

ncclResult_t Send(CUdeviceptr from, size_t bytes, int peer, ncclComm_t comm, CUstream stream) {
  return ncclSend(At(from), bytes, kNcclUint8, peer, comm, stream);
}

ncclResult_t Receive(CUdeviceptr to, size_t bytes, int peer, ncclComm_t comm, CUstream stream) {
  return ncclRecv(At(to), bytes, kNcclUint8, peer, comm, stream);
}

TEST(SoftNccl, FourRanksPassRoundTheRing) {
  setenv("SOFT_NCCL_BUFFER", std::to_string(kBuffer).c_str(), 1);
  Ranks four(4);
  four.Run([&](int rank) {
    const ncclComm_t comm = Init(four, 4, rank);
    ASSERT_NE(comm, nullptr);
    int number = -1;
    ASSERT_EQ(ncclCommUserRank(comm, &number), kNcclSuccess);
    EXPECT_EQ(number, rank);
    ASSERT_EQ(ncclCommCount(comm, &number), kNcclSuccess);
    EXPECT_EQ(number, 4);
    const CUstream stream = NewStream();
    const int left = (rank + 3) % 4;
    for (const size_t bytes : {size_t{4}, size_t{100'000}, 3 * kBuffer + 5}) {
      const CUdeviceptr from = Fill(bytes, rank);
      const CUdeviceptr to = Fill(bytes, -1);
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      ASSERT_EQ(Send(from, bytes, (rank + 1) % 4, comm, stream), kNcclSuccess);
      ASSERT_EQ(Receive(to, bytes, left, comm, stream), kNcclSuccess);
      ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(Fetch(to, bytes), Pattern(bytes, left));
    }
    uint64_t sends = 0;
    uint64_t receives = 0;
    softNcclCounts(&sends, &receives);
    EXPECT_EQ(sends, 3U);
    EXPECT_EQ(receives, 3U);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    EXPECT_EQ(Send(1, 1, 0, comm, stream), kNcclInvalidArgument);
  });
}

TEST(SoftNccl, ASendWithinTheBufferEndsBeforeItsReceive) {
  setenv("SOFT_NCCL_BUFFER", std::to_string(kBuffer).c_str(), 1);
  Ranks two(2);
  two.Run([&](int rank) {
    const ncclComm_t comm = Init(two, 2, rank);
    const CUstream stream = NewStream();
    const size_t small = kBuffer;
    const size_t large = kBuffer + 1;
    const CUdeviceptr memory = rank == 0 ? Fill(large, 5) : Fill(large, -1);
    if (rank == 0) {
      ASSERT_EQ(Send(memory, small, 1, comm, stream), kNcclSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    }
    two.Meet();
    if (rank == 1) {
      ASSERT_EQ(Receive(memory, small, 0, comm, stream), kNcclSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(Fetch(memory, small), Pattern(small, 5));
    } else {
      ASSERT_EQ(Send(memory, large, 1, comm, stream), kNcclSuccess);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(cuStreamQuery(stream), kNotReady);
    }
    two.Meet();
    if (rank == 1) {
      ASSERT_EQ(Receive(memory, large, 0, comm, stream), kNcclSuccess);
    }
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(Fetch(memory, large), Pattern(large, 5));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// Several messages between all pairs at once, in two streams.
TEST(SoftNccl, AGroupOfAllWithAll) {
  Ranks four(4);
  four.Run([&](int rank) {
    constexpr size_t kBytes = 70'000;
    const ncclComm_t comm = Init(four, 4, rank);
    const CUstream streams[] = {NewStream(), NewStream()};
    std::vector<CUdeviceptr> to;
    ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
    for (int peer = 0; peer < 4; ++peer) {
      for (int turn = 0; turn < 2; ++turn) {
        to.push_back(Fill(kBytes, -1));
        const CUdeviceptr from = Fill(kBytes, rank * 100 + peer * 10 + turn);
        const CUstream stream = streams[peer % 2];
        ASSERT_EQ(Receive(to.back(), kBytes, peer, comm, stream), kNcclSuccess);
        ASSERT_EQ(Send(from, kBytes, peer, comm, stream), kNcclSuccess);
      }
    }
    ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
    ASSERT_EQ(cuStreamSynchronize(streams[1]), kCudaSuccess);
    for (int peer = 0; peer < 4; ++peer) {
      for (int turn = 0; turn < 2; ++turn) {
        EXPECT_EQ(Fetch(to[static_cast<size_t>(2 * peer + turn)], kBytes),
                  Pattern(kBytes, peer * 100 + rank * 10 + turn));
      }
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, SumsAndBroadcasts) {
  Ranks three(3);
  three.Run([&](int rank) {
    constexpr size_t kCount = 50'000;
    const ncclComm_t comm = Init(three, 3, rank);
    const CUstream stream = NewStream();
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 100) + 1;
    const CUdeviceptr data = Fill(kCount * sizeof(float), -1);
    ASSERT_EQ(cuMemcpyHtoD_v2(data, values.data(), kCount * sizeof(float)), kCudaSuccess);
    ASSERT_EQ(ncclAllReduce(At(data), At(data), kCount, kNcclFloat32, kNcclSum, comm, stream),
              kNcclSuccess);
    const CUdeviceptr other = Fill(kCount, rank);
    ASSERT_EQ(ncclBroadcast(At(other), At(other), kCount, kNcclUint8, 2, comm, stream),
              kNcclSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    std::vector<float> sums(kCount);
    ASSERT_EQ(cuMemcpyDtoH_v2(sums.data(), data, kCount * sizeof(float)), kCudaSuccess);
    for (float& value : values) value *= 3;
    EXPECT_EQ(sums, values);
    EXPECT_EQ(Fetch(other, kCount), Pattern(kCount, 2));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, SplitsByColorAndKeyAndShrinks) {
  Ranks four(4);
  four.Run([&](int rank) {
    const ncclComm_t comm = Init(four, 4, rank);
    const CUstream stream = NewStream();
    for (int turn = 0; turn < 3; ++turn) {
      ncclComm_t half = nullptr;
      const int color = rank == 3 ? kNcclNoColor : 1;
      ASSERT_EQ(ncclCommSplit(comm, color, -rank, &half, nullptr), kNcclSuccess);
      if (rank == 3) {
        EXPECT_EQ(half, nullptr);
        continue;
      }
      int number = -1;
      ASSERT_EQ(ncclCommUserRank(half, &number), kNcclSuccess);
      EXPECT_EQ(number, 2 - rank);
      ASSERT_EQ(ncclCommCount(half, &number), kNcclSuccess);
      EXPECT_EQ(number, 3);
      const CUdeviceptr data = Fill(100, rank);
      ASSERT_EQ(ncclBroadcast(At(data), At(data), 100, kNcclUint8, 0, half, stream), kNcclSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(Fetch(data, 100), Pattern(100, 2));
      EXPECT_EQ(ncclCommDestroy(half), kNcclSuccess);
    }
    if (rank != 1) {
      int excluded = 1;
      ncclComm_t rest = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, 0), kNcclSuccess);
      int number = -1;
      ASSERT_EQ(ncclCommUserRank(rest, &number), kNcclSuccess);
      EXPECT_EQ(number, rank == 0 ? 0 : rank - 1);
      EXPECT_EQ(ncclCommDestroy(rest), kNcclSuccess);
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, ARankThatDiesLeavesOthersAbleToAbort) {
  Ranks three(3);
  three.Run(
      [&](int rank) {
        const ncclComm_t comm = Init(three, 3, rank);
        const CUstream stream = NewStream();
        three.Meet();
        if (rank == 2) raise(SIGKILL);
        const CUdeviceptr to = Fill(1000, -1);
        ASSERT_EQ(Receive(to, 1000, 2, comm, stream), kNcclSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ(cuStreamQuery(stream), kNotReady);
        EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
        EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
        EXPECT_EQ(Send(to, 1, 0, comm, stream), kNcclInvalidArgument);
      },
      2);
}

// Creating a communicator can be aborted while a rank is missing.
TEST(SoftNccl, AnAbortEndsTheWaitForOthers) {
  Ranks one(1);
  one.Run([&](int) {
    UseGpu(0);
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), kNcclSuccess);
    ncclConfig_t config;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), kNcclInProgress);
    EXPECT_EQ(Send(1, 1, 0, comm, nullptr), kNcclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
  });
}

// Kernels of one communicator run in the order of their calls, also in different streams.
TEST(SoftNccl, GroupsInTwoStreamsKeepTheirOrder) {
  Ranks two(2);
  two.Run([&](int rank) {
    constexpr size_t kBytes = 5000;
    const ncclComm_t comm = Init(two, 2, rank);
    const CUstream streams[] = {NewStream(), NewStream()};
    std::vector<CUdeviceptr> memory;
    for (int turn = 0; turn < 20; ++turn) {
      memory.push_back(Fill(kBytes, rank == 0 ? turn : -1));
      const CUstream stream = streams[(turn + rank) % 2];
      ASSERT_EQ(rank == 0 ? Send(memory.back(), kBytes, 1, comm, stream)
                          : Receive(memory.back(), kBytes, 0, comm, stream),
                kNcclSuccess);
    }
    ASSERT_EQ(cuCtxSynchronize(), kCudaSuccess);
    for (int turn = 0; turn < 20; ++turn) {
      EXPECT_EQ(Fetch(memory[static_cast<size_t>(turn)], kBytes), Pattern(kBytes, turn));
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, LengthsThatDifferAreAnError) {
  Ranks two(2);
  two.Run([&](int rank) {
    const ncclComm_t comm = Init(two, 2, rank);
    const CUstream stream = NewStream();
    const CUdeviceptr memory = Fill(1000, 1);
    ASSERT_EQ(
        rank == 0 ? Send(memory, 1000, 1, comm, stream) : Receive(memory, 999, 0, comm, stream),
        kNcclSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    ncclResult_t error = kNcclSuccess;
    ASSERT_EQ(ncclCommGetAsyncError(comm, &error), kNcclSuccess);
    EXPECT_EQ(error, rank == 0 ? kNcclSuccess : kNcclInternalError);
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, TwoRanksOnOneGpuAreRefused) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(0);
    if (rank == 0) {
      ASSERT_EQ(ncclGetUniqueId(&two.shared().id), kNcclSuccess);
    }
    two.Meet();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, two.shared().id, rank), kNcclInvalidUsage);
    two.Meet();
  });
}

TEST(SoftNccl, RefusesTheCallThatTheEnvironmentNames) {
  Ranks one(1);
  one.Run([&](int) {
    setenv("SOFT_NCCL_REFUSE", "ncclCommInitRank:1", 1);
    // NCCL's own calls are not counted.
    setenv("SOFT_CUDA_REFUSE", "cuEventCreate:1", 1);
    UseGpu(0);
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), kNcclSuccess);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), kNcclSystemError);
    ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), kNcclSuccess);
    EXPECT_EQ(pncclCommDestroy(comm), kNcclSuccess);
    CUevent event = nullptr;
    EXPECT_EQ(cuEventCreate(&event, 0), kOutOfMemory);
  });
}

TEST(SoftNccl, ACommunicatorThatIsNotBlockingComesLater) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    if (rank == 0) {
      ASSERT_EQ(ncclGetUniqueId(&two.shared().id), kNcclSuccess);
    }
    two.Meet();
    ncclConfig_t config;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, two.shared().id, rank, &config), kNcclInProgress);
    const auto state = [&] {
      ncclResult_t error = kNcclInternalError;
      EXPECT_EQ(ncclCommGetAsyncError(comm, &error), kNcclSuccess);
      return error;
    };
    ASSERT_TRUE(Soon([&] { return state() == kNcclSuccess; }));
    // A split communicator is nonblocking as well, and its handle is written when it is complete.
    ncclComm_t part = nullptr;
    if (rank == 1) two.Meet();
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &part, nullptr), kNcclSuccess);
    int number = -1;
    if (rank == 0) {
      EXPECT_EQ(state(), kNcclInProgress);
      EXPECT_EQ(ncclCommCount(comm, &number), kNcclInvalidArgument);
      EXPECT_EQ(__atomic_load_n(&part, __ATOMIC_ACQUIRE), nullptr);
      two.Meet();
    }
    ASSERT_TRUE(Soon([&] { return state() == kNcclSuccess; }));
    ASSERT_EQ(ncclCommUserRank(part, &number), kNcclSuccess);
    EXPECT_EQ(number, rank);
    EXPECT_EQ(ncclCommDestroy(part), kNcclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// First one thread uses both GPUs, then two threads do.
TEST(SoftNccl, TwoGpusOfOneProcess) {
  Ranks one(1);
  one.Run([&](int) {
    constexpr size_t kBytes = 300'000;
    ncclComm_t comms[2] = {};
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), kNcclSuccess);
    CUdeviceptr from[2] = {};
    CUdeviceptr to[2] = {};
    CUstream streams[2] = {};
    for (int gpu = 0; gpu < 2; ++gpu) {
      UseGpu(gpu);
      from[gpu] = Fill(kBytes, gpu);
      to[gpu] = Fill(kBytes, -1);
      streams[gpu] = NewStream();
    }
    ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
    for (int gpu = 0; gpu < 2; ++gpu) {
      ASSERT_EQ(Send(from[gpu], kBytes, 1 - gpu, comms[gpu], streams[gpu]), kNcclSuccess);
      ASSERT_EQ(Receive(to[gpu], kBytes, 1 - gpu, comms[gpu], streams[gpu]), kNcclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
    const auto drive = [&](int gpu) {
      UseGpu(gpu);
      ASSERT_EQ(cuStreamSynchronize(streams[gpu]), kCudaSuccess);
      EXPECT_EQ(Fetch(to[gpu], kBytes), Pattern(kBytes, 1 - gpu));
      for (int turn = 0; turn < 10; ++turn) {
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        ASSERT_EQ(Send(from[gpu], kBytes, 1 - gpu, comms[gpu], streams[gpu]), kNcclSuccess);
        ASSERT_EQ(Receive(to[gpu], kBytes, 1 - gpu, comms[gpu], streams[gpu]), kNcclSuccess);
        ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
      }
      EXPECT_EQ(ncclCommDestroy(comms[gpu]), kNcclSuccess);
    };
    std::thread other([&] { drive(1); });
    drive(0);
    other.join();
  });
}

TEST(SoftNccl, AGraphSendsAgain) {
  Ranks two(2);
  two.Run([&](int rank) {
    const ncclComm_t comm = Init(two, 2, rank);
    const CUstream stream = NewStream();
    const CUdeviceptr memory = Fill(1000, -1);
    ASSERT_EQ(cuStreamBeginCapture_v2(stream, 1), kCudaSuccess);
    ASSERT_EQ(
        rank == 0 ? Send(memory, 1000, 1, comm, stream) : Receive(memory, 1000, 0, comm, stream),
        kNcclSuccess);
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), kCudaSuccess);
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), kCudaSuccess);
    for (int turn = 0; turn < 3; ++turn) {
      if (rank == 0) {
        ASSERT_EQ(cuMemcpyHtoD_v2(memory, Pattern(1000, turn).data(), 1000), kCudaSuccess);
      }
      ASSERT_EQ(cuGraphLaunch(exec, stream), kCudaSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      EXPECT_EQ(Fetch(memory, 1000), Pattern(1000, turn));
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, ItsMemoryCanBeExported) {
  Ranks one(1);
  one.Run([&](int) {
    UseGpu(0);
    void* pointer = nullptr;
    ASSERT_EQ(ncclMemAlloc(&pointer, 100), kNcclSuccess);
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(cuMemRetainAllocationHandle(&handle, pointer), kCudaSuccess);
    EXPECT_EQ(cuMemRelease(handle), kCudaSuccess);
    EXPECT_EQ(cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(pointer), 1, 100), kCudaSuccess);
    EXPECT_EQ(ncclMemFree(pointer), kNcclSuccess);
    EXPECT_EQ(ncclMemFree(pointer), kNcclUnhandledCudaError);
  });
}

TEST(SoftNccl, CollectivesOfMessagesMoveBytes) {
  static constexpr size_t kPart = 500;
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const CUdeviceptr from = Fill(2 * kPart, 1 + rank);
    const CUdeviceptr to = Fill(2 * kPart, -1);
    const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    const auto half = [](int sender, int which) {
      const std::vector<uint8_t> all = Pattern(2 * kPart, 1 + sender);
      const auto begin = all.begin() + static_cast<ptrdiff_t>(kPart) * which;
      return std::vector<uint8_t>(begin, begin + kPart);
    };
    ASSERT_EQ(ncclAlltoAll(pointer(from), pointer(to), kPart, kNcclUint8, comm, stream),
              kNcclSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(Fetch(to, kPart), half(0, rank));
    EXPECT_EQ(Fetch(to + kPart, kPart), half(1, rank));
    ASSERT_EQ(ncclScatter(pointer(from), pointer(to), kPart, kNcclUint8, 1, comm, stream),
              kNcclSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(Fetch(to, kPart), half(1, rank));
    ASSERT_EQ(ncclGather(pointer(from), pointer(to), kPart, kNcclUint8, 0, comm, stream),
              kNcclSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    if (rank == 0) {
      EXPECT_EQ(Fetch(to, kPart), half(0, 0));
      EXPECT_EQ(Fetch(to + kPart, kPart), half(1, 0));
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(SoftNccl, ACommunicatorGrows) {
  Ranks three(3);
  three.Run([&](int rank) {
    UseGpu(rank);
    ncclComm_t two = nullptr;
    ncclUniqueId id;
    if (rank == 0) {
      ASSERT_EQ(ncclGetUniqueId(&three.shared().id), kNcclSuccess);
    }
    three.Meet();
    if (rank < 2) {
      ASSERT_EQ(ncclCommInitRank(&two, 2, three.shared().id, rank), kNcclSuccess);
    }
    three.Meet();
    if (rank == 0) {
      ASSERT_EQ(ncclCommGetUniqueId(two, &three.shared().id), kNcclSuccess);
    }
    three.Meet();
    id = three.shared().id;
    ncclComm_t grown = nullptr;
    ASSERT_EQ(ncclCommGrow(two, 3, rank == 1 ? nullptr : &id, rank == 2 ? 2 : -1, &grown, nullptr),
              kNcclSuccess);
    int ranks = 0;
    int mine = -1;
    EXPECT_EQ(ncclCommCount(grown, &ranks), kNcclSuccess);
    EXPECT_EQ(ncclCommUserRank(grown, &mine), kNcclSuccess);
    EXPECT_EQ(ranks, 3);
    EXPECT_EQ(mine, rank);
    EXPECT_EQ(ncclCommDestroy(grown), kNcclSuccess);
    EXPECT_EQ(ncclCommDestroy(two), kNcclSuccess);
  });
}

TEST(SoftNccl, ASimulatedGroupNeverRuns) {
  Ranks one(1);
  one.Run([&](int) {
    ncclComm_t comm = Init(one, 1, 0);
    CUstream stream = NewStream();
    const CUdeviceptr from = Fill(100, 1);
    const CUdeviceptr to = Fill(100, -1);
    ncclSimInfo_t info;
    const auto exchange = [&] {
      EXPECT_EQ(ncclGroupStart(), kNcclSuccess);
      EXPECT_EQ(ncclSend(reinterpret_cast<void*>(from), 100, kNcclUint8, 0, comm, stream),
                kNcclSuccess);
      EXPECT_EQ(ncclRecv(reinterpret_cast<void*>(to), 100, kNcclUint8, 0, comm, stream),
                kNcclSuccess);
    };
    exchange();
    EXPECT_EQ(ncclGroupSimulateEnd(&info), kNcclSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(Fetch(to, 100), std::vector<uint8_t>(100, 0xEE));
    EXPECT_EQ(info.time, 1);
    EXPECT_EQ(ncclGroupSimulateEnd(&info), kNcclInvalidUsage);
    // Without a struct the simulated end runs the group.
    exchange();
    EXPECT_EQ(ncclGroupSimulateEnd(nullptr), kNcclSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(Fetch(to, 100), Pattern(100, 1));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

}  // namespace
}  // namespace nccltune::soft
