// SPDX-License-Identifier: Apache-2.0
//
// Communicators that are created and ended: split, shrunk, aborted, in groups and in threads.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

// Exchanges messages and checks that copy engines carried some of them.
void ExchangeSome(ncclComm_t comm, int rank, int peer, CUstream stream, const Pair& pair) {
  const uint64_t before = NativeSends();
  for (int round = 0; round < 2 * kWarm; ++round) {
    ASSERT_EQ(Exchange(pair, round, rank, peer, comm, stream), kNcclSuccess);
  }
  EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(2 * kWarm));
}

TEST(Comms, SplitAndShrunk) {
  Ranks three(3);
  three.Run([&](int rank) {
    ncclComm_t comm = Init(three, 3, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    for (int turn = 0; turn < 2; ++turn) {
      ncclComm_t half = nullptr;
      const int color = rank == 2 ? kNcclNoColor : 1;
      ASSERT_EQ(ncclCommSplit(comm, color, -rank, &half, nullptr), kNcclSuccess);
      // In the split communicator the ranks have the opposite order.
      if (rank != 2) {
        ExchangeSome(half, 1 - rank, rank, stream, pair);
        EXPECT_EQ(ncclCommDestroy(half), kNcclSuccess);
      } else {
        EXPECT_EQ(half, nullptr);
      }
    }
    if (rank != 1) {
      int excluded = 1;
      ncclComm_t rest = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, 0), kNcclSuccess);
      ExchangeSome(rest, rank / 2, 1 - rank / 2, stream, pair);
      EXPECT_EQ(ncclCommDestroy(rest), kNcclSuccess);
    }
    // The first communicator still works.
    if (rank != 2) ExchangeSome(comm, rank, 1 - rank, stream, pair);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    Free(pair);
  });
}

struct TwoGpus {
  ncclComm_t comms[2] = {};
  Pair pairs[2];
  CUstream streams[2] = {};

  TwoGpus() {
    EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), kNcclSuccess);
    for (int gpu = 0; gpu < 2; ++gpu) {
      UseGpu(gpu);
      pairs[gpu] = NewPair(kBytes);
      streams[gpu] = NewStream();
    }
  }
  ~TwoGpus() {
    for (int gpu = 0; gpu < 2; ++gpu) {
      UseGpu(gpu);
      EXPECT_EQ(ncclCommDestroy(comms[gpu]), kNcclSuccess);
      Free(pairs[gpu]);
    }
  }
};

TEST(Comms, OneThreadForTwoGpus) {
  Ranks one(1);
  one.Run([&](int) {
    TwoGpus both;
    for (int round = 0; round < 2 * kWarm; ++round) {
      for (int gpu = 0; gpu < 2; ++gpu) {
        UseGpu(gpu);
        ASSERT_EQ(
            cuMemcpyHtoD_v2(both.pairs[gpu].from, Pattern(kBytes, 2 * round + gpu).data(), kBytes),
            kCudaSuccess);
      }
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      for (int gpu = 0; gpu < 2; ++gpu) {
        const Pair& pair = both.pairs[gpu];
        ASSERT_EQ(Send(pair.from, kBytes, 1 - gpu, both.comms[gpu], both.streams[gpu]),
                  kNcclSuccess);
        ASSERT_EQ(Receive(pair.to, kBytes, 1 - gpu, both.comms[gpu], both.streams[gpu]),
                  kNcclSuccess);
      }
      ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
      for (int gpu = 0; gpu < 2; ++gpu) {
        UseGpu(gpu);
        ASSERT_EQ(cuStreamSynchronize(both.streams[gpu]), kCudaSuccess);
        EXPECT_EQ(Fetch(both.pairs[gpu].to, kBytes), Pattern(kBytes, 2 * round + 1 - gpu));
      }
    }
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(4 * kWarm));
  });
}

TEST(Comms, AThreadForEachGpu) {
  Ranks one(1);
  one.Run([&](int) {
    TwoGpus both;
    const auto drive = [&](int gpu) {
      UseGpu(gpu);
      const Pair& pair = both.pairs[gpu];
      ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(kBytes, gpu).data(), kBytes), kCudaSuccess);
      for (int round = 0; round < 2 * kWarm; ++round) {
        ASSERT_EQ(cuMemsetD8_v2(pair.to, 0xEE, kBytes), kCudaSuccess);
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        ASSERT_EQ(Send(pair.from, kBytes, 1 - gpu, both.comms[gpu], both.streams[gpu]),
                  kNcclSuccess);
        ASSERT_EQ(Receive(pair.to, kBytes, 1 - gpu, both.comms[gpu], both.streams[gpu]),
                  kNcclSuccess);
        ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
        ASSERT_EQ(cuStreamSynchronize(both.streams[gpu]), kCudaSuccess);
        EXPECT_EQ(Fetch(pair.to, kBytes), Pattern(kBytes, 1 - gpu));
      }
    };
    std::thread other(drive, 1);
    drive(0);
    other.join();
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(4 * kWarm));
  });
}

TEST(Comms, MadeInAGroup) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    if (rank == 0) {
      ASSERT_EQ(ncclGetUniqueId(&two.shared().id), kNcclSuccess);
    }
    two.Meet();
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
    ASSERT_EQ(ncclCommInitRank(&comm, 2, two.shared().id, rank), kNcclSuccess);
    ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
    const Pair pair = NewPair(kBytes);
    CUstream stream = NewStream();
    ExchangeSome(comm, rank, 1 - rank, stream, pair);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

bool IsDone(ncclComm_t comm) {
  return Soon([&] {
    ncclResult_t error = kNcclInProgress;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &error), kNcclSuccess);
    return error != kNcclInProgress;
  });
}

ncclComm_t InitLater(Ranks& ranks, int count, int rank) {
  UseGpu(rank);
  if (rank == 0) {
    EXPECT_EQ(ncclGetUniqueId(&ranks.shared().id), kNcclSuccess);
  }
  ranks.Meet();
  ncclConfig_t config;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, count, ranks.shared().id, rank, &config),
            kNcclInProgress);
  return comm;
}

constexpr int kRounds = 4 * kWarm;

// The same for a nonblocking communicator.
void ExchangeLater(Ranks& ranks, ncclComm_t comm, int peer, CUstream stream, const Pair& pair) {
  const uint64_t before = NativeSends();
  for (int round = 0; round < kRounds; ++round) {
    ranks.Meet();
    ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
    ASSERT_EQ(Send(pair.from, kBytes, peer, comm, stream), kNcclSuccess);
    ASSERT_EQ(Receive(pair.to, kBytes, peer, comm, stream), kNcclSuccess);
    const ncclResult_t result = ncclGroupEnd();
    ASSERT_TRUE(result == kNcclSuccess || result == kNcclInProgress) << result;
    ASSERT_TRUE(IsDone(comm));
  }
  ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
  EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(2 * kWarm));
}

// Nonblocking communicators. The program polls NCCL until each call is complete, as it must.
TEST(Comms, ThatDoNotBlock) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = InitLater(two, 2, rank);
    ASSERT_TRUE(IsDone(comm));
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ExchangeLater(two, comm, 1 - rank, stream, pair);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    Free(pair);
  });
}

// One rank gets the handle of its child and sends before the other rank polls.
TEST(Comms, PartsOfOneThatDoesNotBlock) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = InitLater(two, 2, rank);
    ASSERT_TRUE(IsDone(comm));
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    const Pair other = NewPair(kBytes);
    for (int turn = 0; turn < 2; ++turn) {
      ncclComm_t part = nullptr;
      // In the split communicator the ranks have the opposite order.
      if (turn == 0) {
        ASSERT_EQ(ncclCommSplit(comm, 1, -rank, &part, nullptr), kNcclSuccess);
      } else {
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        ASSERT_EQ(ncclCommSplit(comm, 1, -rank, &part, nullptr), kNcclSuccess);
        ASSERT_EQ(ncclGroupEnd(), kNcclInProgress);
      }
      if (rank == 0) {
        ASSERT_TRUE(IsDone(comm));
        ASSERT_NE(part, nullptr);
        for (const Pair& each : {pair, other}) {
          const ncclResult_t result = Send(each.from, kBytes, 0, part, stream);
          ASSERT_TRUE(result == kNcclSuccess || result == kNcclInProgress) << result;
          ASSERT_TRUE(IsDone(part));
        }
        ASSERT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
      }
      two.Meet();
      if (rank == 1) {
        ASSERT_TRUE(IsDone(comm));
        ASSERT_NE(part, nullptr);
        for (const Pair& each : {pair, other}) {
          const ncclResult_t result = Receive(each.to, kBytes, 1, part, stream);
          ASSERT_TRUE(result == kNcclSuccess || result == kNcclInProgress) << result;
          ASSERT_TRUE(IsDone(part));
          ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
          EXPECT_EQ(Fetch(each.to, kBytes), Pattern(kBytes, 0));
        }
      }
      ExchangeLater(two, part, rank, stream, pair);
      EXPECT_EQ(ncclCommDestroy(part), kNcclSuccess);
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    EXPECT_EQ(CountSegments(), 0U);
    Free(pair);
    Free(other);
  });
}

// Children of a child, and a shrunk communicator that some ranks are not part of.
TEST(Comms, PartsOfPartsThatDoNotBlock) {
  Ranks three(3);
  three.Run([&](int rank) {
    ncclComm_t comm = InitLater(three, 3, rank);
    ASSERT_TRUE(IsDone(comm));
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ncclComm_t half = nullptr;
    const int color = rank == 2 ? kNcclNoColor : 1;
    ASSERT_EQ(ncclCommSplit(comm, color, -rank, &half, nullptr), kNcclSuccess);
    ASSERT_TRUE(IsDone(comm));
    ASSERT_EQ(half == nullptr, rank == 2);
    ncclComm_t quarter = nullptr;
    if (rank != 2) {
      ncclConfig_t config;
      ASSERT_EQ(ncclCommSplit(half, 0, rank, &quarter, &config), kNcclSuccess);
      ASSERT_TRUE(IsDone(half));
      // This communicator blocks.
      ExchangeSome(quarter, rank, 1 - rank, stream, pair);
    }
    three.Meet();
    ncclComm_t rest = nullptr;
    if (rank != 1) {
      int excluded = 1;
      ASSERT_EQ(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, 0), kNcclSuccess);
      ASSERT_TRUE(IsDone(comm));
      ExchangeLater(three, rest, 1 - rank / 2, stream, pair);
    } else {
      for (int round = 0; round < kRounds; ++round) three.Meet();
    }
    three.Meet();
    for (ncclComm_t each : {quarter, half, rest, comm}) {
      EXPECT_EQ(ncclCommDestroy(each), kNcclSuccess);
    }
    EXPECT_EQ(CountSegments(), 0U);
    Free(pair);
  });
}

// The parent is aborted while a child is being created. NCCL abandons the child, and the program
// gets its handle to abort it.
TEST(Comms, PartsOfOneThatIsAborted) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = InitLater(two, 2, rank);
    ASSERT_TRUE(IsDone(comm));
    ncclComm_t part = nullptr;
    if (rank == 0) {
      ASSERT_EQ(ncclCommSplit(comm, 1, rank, &part, nullptr), kNcclSuccess);
    }
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    EXPECT_EQ(part != nullptr, rank == 0);
    EXPECT_EQ(ncclCommAbort(part), kNcclSuccess);
    EXPECT_TRUE(Soon([] { return CountSegments() == 0; }));
  });
}

// Only one of the two ranks is nonblocking. Both must number the split communicators alike.
TEST(Comms, ThatBlockOnOneSide) {
  RunTwo(0, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    ncclConfig_t config;
    config.blocking = rank;
    for (ncclConfig_t* const each : {&config, static_cast<ncclConfig_t*>(nullptr)}) {
      ncclComm_t half = nullptr;
      // Its parent blocks.
      ASSERT_EQ(ncclCommSplit(comm, 0, rank, &half, each), kNcclSuccess);
      ExchangeLater(two, half, 1 - rank, stream, pair);
      two.Meet();
      EXPECT_EQ(ncclCommDestroy(half), kNcclSuccess);
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    Free(pair);
  });
}

// The abort may come at any point of NCCL's work.
TEST(Comms, ThatDoNotBlockAndAreAborted) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = InitLater(two, 2, rank);
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    two.Meet();
    comm = InitLater(two, 2, rank);
    ASSERT_TRUE(IsDone(comm));
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    for (int round = 0; round < 2 * kWarm; ++round) {
      two.Meet();
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      // NCCL carries the small message in each group.
      for (const size_t bytes : {size_t{64}, kBytes}) {
        ASSERT_EQ(Send(pair.from, bytes, 1 - rank, comm, stream), kNcclSuccess);
        ASSERT_EQ(Receive(pair.to, bytes, 1 - rank, comm, stream), kNcclSuccess);
      }
      const ncclResult_t result = ncclGroupEnd();
      if (round + 1 == 2 * kWarm) {
        // The other rank may have aborted already.
        EXPECT_TRUE(result == kNcclInProgress || result == kNcclRemoteError) << result;
      } else {
        ASSERT_EQ(result, kNcclInProgress);
        ASSERT_TRUE(IsDone(comm));
        ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      }
    }
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
    two.Meet();
  });
}

// A receive without a send ends when another thread aborts. After that the program can create new
// communicators.
TEST(Comms, AnAbortEndsAReceiveAndThePeerLearnsOfIt) {
  RunTwo(0, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    ExchangeSome(comm, rank, 1 - rank, stream, pair);
    two.Meet();
    ASSERT_EQ(Receive(pair.to, kBytes, 1 - rank, comm, stream), kNcclSuccess);
    two.Meet();
    if (rank == 0) {
      std::thread([&] { EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess); }).join();
    } else {
      EXPECT_TRUE(LearnsOfAnError(comm));
      EXPECT_NE(Send(pair.from, kBytes, 0, comm, stream), kNcclSuccess);
      EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    }
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) == kCudaSuccess; }));
    two.Meet();
    if (rank == 0) {
      ASSERT_EQ(ncclGetUniqueId(&two.shared().id), kNcclSuccess);
    }
    two.Meet();
    ASSERT_EQ(ncclCommInitRank(&comm, 2, two.shared().id, rank), kNcclSuccess);
    ExchangeSome(comm, rank, 1 - rank, stream, pair);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    Free(pair);
  });
}

// Some frameworks end a communicator by an abort.
TEST(Comms, AnAbortWhenAllIsOverIsNoErrorElsewhere) {
  Ranks three(3);
  three.Run([&](int rank) {
    ncclComm_t comm = Init(three, 3, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    for (int first = 0; first < 3; ++first) {
      const int second = (first + 1) % 3;
      if (rank == first) ExchangeSome(comm, rank, second, stream, pair);
      if (rank == second) ExchangeSome(comm, rank, first, stream, pair);
      three.Meet();
    }
    if (rank == 2) {
      EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    }
    three.Meet();
    if (rank != 2) {
      ExchangeSome(comm, rank, 1 - rank, stream, pair);
      EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    }
  });
}

// The peer learns of a rank that aborts and then ends at once.
TEST(Comms, AnAbortAndAnEndAreLearnedOf) {
  RunTwo(0, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    ExchangeSome(comm, rank, 1 - rank, stream, pair);
    two.Meet();
    if (rank == 1) {
      ASSERT_EQ(Receive(pair.to, kBytes, 0, comm, stream), kNcclSuccess);
    }
    two.Meet();
    if (rank == 0) {
      two.shared().numbers[0] = getpid();
      EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    }
    two.Meet();
    if (rank == 0) return;
    AwaitEnd(two.shared().numbers[0]);
    EXPECT_TRUE(LearnsOfAnError(comm));
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) == kCudaSuccess; }));
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
  });
}

// A dead rank's bytes never arrive. The work behind them in the stream must not run until the
// application has seen the error, or until 10 s have passed.
TEST(Comms, WhatWaitsForADeadRankWaitsUntilSomebodyKnows) {
  for (const bool asks : {true, false}) {
    Ranks two(2);
    two.Run(
        [&](int rank) {
          ncclComm_t comm = Init(two, 2, rank);
          CUstream stream = NewStream();
          const Pair pair = NewPair(kBytes);
          ExchangeSome(comm, rank, 1 - rank, stream, pair);
          if (rank == 0) {
            ASSERT_EQ(Receive(pair.to, kBytes, 1, comm, stream), kNcclSuccess);
          }
          two.Meet();
          if (rank == 1) kill(getpid(), SIGKILL);
          std::this_thread::sleep_for(std::chrono::seconds(2));
          EXPECT_EQ(cuStreamQuery(stream), kNotReady);
          const auto over = [&] { return cuStreamQuery(stream) != kNotReady; };
          if (!asks) {
            EXPECT_TRUE(Soon(over));
          }
          EXPECT_TRUE(LearnsOfAnError(comm));
          EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
          EXPECT_TRUE(Soon(over));
          std::printf("peer lost\n");
        },
        1);
  }
}

TEST(Comms, ComeAndGoWithoutATrace) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    const Pair pair = NewPair(kBytes);
    CUstream stream = NewStream();
    size_t free = 0;
    size_t files = 0;
    size_t threads = 0;
    for (int turn = 0; turn < 20; ++turn) {
      if (rank == 0) {
        ASSERT_EQ(ncclGetUniqueId(&two.shared().id), kNcclSuccess);
      }
      two.Meet();
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, two.shared().id, rank), kNcclSuccess);
      for (int round = 0; round < kWarm; ++round) {
        ASSERT_EQ(Exchange(pair, round, rank, 1 - rank, comm, stream), kNcclSuccess);
        two.Meet();
      }
      // Posted after the receive as a send alone, so it is staged.
      if (rank == 1) {
        ASSERT_EQ(Receive(pair.to, kBytes, 0, comm, stream), kNcclSuccess);
      }
      two.Meet();
      if (rank == 0) {
        ASSERT_EQ(Send(pair.from, kBytes, 1, comm, stream), kNcclSuccess);
      }
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      two.Meet();
      ASSERT_EQ(ncclCommDestroy(comm), kNcclSuccess);
      two.Meet();
      EXPECT_EQ(CountSegments(), 0U);
      size_t total = 0;
      size_t now = 0;
      ASSERT_EQ(cuMemGetInfo_v2(&now, &total), kCudaSuccess);
      if (turn == 1) {
        free = now;
        files = CountFiles();
        threads = CountThreads();
      } else if (turn > 1) {
        EXPECT_EQ(now, free) << turn;
        EXPECT_LE(CountFiles(), files) << turn;
        // The threads of deleted streams end a little later.
        EXPECT_TRUE(Soon([&] { return CountThreads() <= threads; })) << turn;
      }
    }
    // No mapping of the peer's memory is left, so it can be freed.
    Free(pair);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
