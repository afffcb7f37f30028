// SPDX-License-Identifier: Apache-2.0
//
// Messages between two or more ranks in separate processes.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

// Run in many environments. The bytes must be right; the number of sends that NCCL got is printed.
TEST(Exchange, Rounds) {
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    if (const char* const most = std::getenv("CASE_FILE_LIMIT")) {
      const rlim_t bytes = std::strtoull(most, nullptr, 10);
      const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const char* const bytes = std::getenv("CASE_BYTES");
    const Pair pair = NewPair(bytes == nullptr ? 2 * kBytes : std::strtoull(bytes, nullptr, 10));
    Warm(two, pair, rank, comm, stream, kWarm + 3);
    std::printf("rank %d: native %d, segments %zu, threads %zu\n", rank,
                static_cast<int>(NativeSends()), CountSegments(), CountThreads());
    // From here on nothing can be left behind in /dev/shm.
    EXPECT_EQ(CountNamedSegments(), 0U);
    two.Meet();
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    EXPECT_EQ(CountSegments(), 0U);
    Free(pair);
  });
}

// Whichever call is refused, every rank gets an error or all its bytes, and none hangs.
TEST(Exchange, WithARefusal) {
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    ncclComm_t comm = Init(two, 2, rank);
    ASSERT_NE(comm, nullptr);
    softCudaSpare(1);
    CUstream stream = NewStream();
    const Pair pair = NewPair(2 * kBytes);
    softCudaSpare(-1);
    ncclResult_t result = kNcclSuccess;
    for (int round = 0; round < kWarm + 3 && result == kNcclSuccess; ++round) {
      result = Exchange(pair, round, rank, 1 - rank, comm, stream);
    }
    std::printf("rank %d: %s\n", rank, result == kNcclSuccess ? "all" : "error");
    const auto over = [&] { return cuStreamQuery(stream) != kNotReady; };
    if (result == kNcclSuccess) {
      // A rank must not abandon a peer that has not received a message yet.
      EXPECT_TRUE(Soon(over));
      two.Meet();
      EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    } else {
      EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
      EXPECT_TRUE(Soon(over));
      two.Meet();
    }
    two.Meet();
  });
}

// The sends complete before they are received. Then their rank destroys the communicator, or just
// ends.
void ReceiveLate(bool destroy) {
  RunTwo(0, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    constexpr int kLast = kWarm + 2;
    for (int round = 0; round <= kLast; ++round) {
      if (rank == 0) {
        ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(kBytes, round).data(), kBytes), kCudaSuccess);
        ASSERT_EQ(Send(pair.from, kBytes, 1, comm, stream), kNcclSuccess);
        ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
        ASSERT_EQ(cuMemsetD8_v2(pair.from, 0xDD, kBytes), kCudaSuccess);
      }
      two.Meet();
      if (rank == 1) {
        // Longer than destroying a communicator takes otherwise.
        if (round == kLast) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        ASSERT_EQ(Receive(pair.to, kBytes, 0, comm, stream), kNcclSuccess);
        ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
        EXPECT_EQ(Fetch(pair.to, kBytes), Pattern(kBytes, round)) << round;
      }
      if (round != kLast) two.Meet();
    }
    if (rank == 1 || destroy) {
      EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    }
  });
}

TEST(Exchange, SendsThatAreReceivedLate) { ReceiveLate(true); }
TEST(Exchange, SendsOfAProcessThatEndsEarly) { ReceiveLate(false); }

// Rank 0 sends in a stream of a green context, as the second side and as the first.
TEST(Exchange, InAStreamOfAGreenContext) {
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    if (rank == 0) softCudaGreen(stream);
    for (int round = 0; round < 2; ++round) {
      const int first = round == 0 ? 1 : 0;
      if (rank == 0) {
        ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(kBytes, round).data(), kBytes), kCudaSuccess);
      }
      if (rank != first) two.Meet();
      ASSERT_EQ(rank == 0 ? Send(pair.from, kBytes, 1, comm, stream)
                          : Receive(pair.to, kBytes, 0, comm, stream),
                kNcclSuccess);
      if (rank == first) two.Meet();
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      if (rank == 1) {
        EXPECT_EQ(Fetch(pair.to, kBytes), Pattern(kBytes, round)) << round;
      }
      two.Meet();
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// Both ranks must report the message that rank 1 waits for.
TEST(Exchange, AReceiveThatIsAskedAbout) {
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    if (rank == 1) {
      ASSERT_EQ(Receive(pair.to, kBytes, 0, comm, stream), kNcclSuccess);
    }
    two.Meet();
    AwaitCheck();
    two.Meet();
    if (rank == 0) {
      ASSERT_EQ(Send(pair.from, kBytes, 1, comm, stream), kNcclSuccess);
    }
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(Wrong, SizesThatDifferAreAnErrorOnBothSides) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(2 * kBytes);
    for (int round = 0; round < kWarm; ++round) {
      ASSERT_EQ(Exchange(pair, round, rank, 1 - rank, comm, stream), kNcclSuccess);
    }
    two.Meet();
    ncclResult_t result = kNcclSuccess;
    if (rank == 0) {
      result = Send(pair.from, 2 * kBytes, 1, comm, stream);
    } else {
      result = Receive(pair.to, kBytes, 0, comm, stream);
    }
    if (result != kNcclSuccess) {
      EXPECT_EQ(result, kNcclInvalidUsage);
      std::printf("refused\n");
    } else {
      EXPECT_TRUE(LearnsOfAnError(comm));
      std::printf("peer lost\n");
    }
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
    // Both ranks have seen the error before one of them ends.
    two.Meet();
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
  });
}

TEST(Memory, OfAPoolGoesByNccl) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    Pair pair = {.bytes = kBytes};
    ASSERT_EQ(cuMemAllocAsync(&pair.from, kBytes, stream), kCudaSuccess);
    ASSERT_EQ(cuMemAllocAsync(&pair.to, kBytes, stream), kCudaSuccess);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    for (int round = 0; round < kWarm; ++round) {
      ASSERT_EQ(Exchange(pair, round, rank, 1 - rank, comm, stream), kNcclSuccess);
    }
    EXPECT_EQ(NativeSends(), static_cast<uint64_t>(kWarm));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(Memory, ThatComesAgainAtTheSameAddress) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    for (int turn = 0; turn < 5; ++turn) {
      const Pair pair = NewPair(kBytes + static_cast<size_t>(turn));
      ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
      Free(pair);
    }
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(5 * kWarm));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// Closing its handle waits for all streams of the GPU, including those of another communicator.
TEST(Memory, ThatIsFreedWhileAnotherCommunicatorWaits) {
  constexpr size_t kLarge = size_t{150} << 20;
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    ncclComm_t other = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &other, nullptr), kNcclSuccess);
    CUstream stream = NewStream();
    CUstream beside = NewStream();
    const Pair waiting = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, waiting, rank, other, beside));
    const auto turn = [&] {
      // Untouched memory costs nothing in the stand-in.
      Pair large;
      EXPECT_EQ(cuMemAlloc_v2(&large.from, kLarge), kCudaSuccess);
      EXPECT_EQ(cuMemAlloc_v2(&large.to, kLarge), kCudaSuccess);
      large.bytes = kBytes;
      Warm(two, large, rank, comm, stream);
      return large;
    };
    // More than peers keep mapped.
    for (int i = 0; i < 5; ++i) {
      const Pair large = turn();
      two.Meet();
      Free(large);
    }
    if (rank == 0) {
      ASSERT_EQ(Receive(waiting.to, kBytes, 1, other, beside), kNcclSuccess);
    }
    const Pair large = turn();
    two.Meet();
    if (rank == 1) {
      ASSERT_EQ(Send(waiting.from, kBytes, 0, other, beside), kNcclSuccess);
    }
    ASSERT_EQ(cuStreamSynchronize(beside), kCudaSuccess);
    Free(large);
    two.Meet();
    // It is unmapped at the first exchange that finds all streams idle.
    const uint64_t before = NativeSends();
    constexpr int kTurns = 10;
    for (int i = 0; i < kTurns; ++i) {
      const Pair again = turn();
      two.Meet();
      Free(again);
    }
    EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(kTurns * kWarm)) << "it is let go of";
    EXPECT_EQ(ncclCommDestroy(other), kNcclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

TEST(Memory, InTheMiddleOfAnAllocation) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair whole = NewPair(4 * kBytes);
    const size_t off = kBytes + 4096 * static_cast<size_t>(rank + 1);
    const Pair part = {.from = whole.from + off, .to = whole.to + 3 * off / 2, .bytes = kBytes};
    for (int round = 0; round < kWarm + 3; ++round) {
      ASSERT_EQ(Exchange(part, round, rank, 1 - rank, comm, stream), kNcclSuccess);
      two.Meet();
    }
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(kWarm + 3));
    // The bytes before and after the message are unchanged.
    EXPECT_EQ(Fetch(whole.to + 3 * off / 2 - 8, 8), std::vector<uint8_t>(8, 0xEE));
    EXPECT_EQ(Fetch(whole.to + 3 * off / 2 + kBytes, 8), std::vector<uint8_t>(8, 0xEE));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    Free(whole);
  });
}

TEST(Group, OfACollectiveAndMessagesInTwoStreams) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream streams[] = {NewStream(), NewStream()};
    const Pair pairs[] = {NewPair(kBytes), NewPair(kBytes)};
    const CUdeviceptr data = Fill(1000, 0);
    for (int round = 0; round < kWarm + 3; ++round) {
      for (const Pair& pair : pairs) {
        ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(kBytes, round * 10 + rank).data(), kBytes),
                  kCudaSuccess);
        ASSERT_EQ(cuMemsetD8_v2(pair.to, 0xEE, kBytes), kCudaSuccess);
      }
      ASSERT_EQ(cuMemcpyHtoD_v2(data, Pattern(1000, round * 10 + rank).data(), 1000), kCudaSuccess);
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(Send(pairs[i].from, kBytes, 1 - rank, comm, streams[i]), kNcclSuccess);
        // The two ranks may use different numbers of streams.
        ASSERT_EQ(Receive(pairs[i].to, kBytes, 1 - rank, comm, streams[i ^ rank]), kNcclSuccess);
      }
      ASSERT_EQ(ncclBroadcast(At(data), At(data), 1000, kNcclUint8, 0, comm, streams[0]),
                kNcclSuccess);
      ASSERT_EQ(ncclGroupEnd(), kNcclSuccess);
      // All streams of a group wait for the whole group.
      ASSERT_EQ(cuStreamSynchronize(streams[1]), kCudaSuccess);
      for (const Pair& pair : pairs) {
        EXPECT_EQ(Fetch(pair.to, kBytes), Pattern(kBytes, round * 10 + 1 - rank));
      }
      ASSERT_EQ(cuStreamSynchronize(streams[0]), kCudaSuccess);
      EXPECT_EQ(Fetch(data, 1000), Pattern(1000, round * 10));
      two.Meet();
    }
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(2 * (kWarm + 3)));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

struct Graph {
  CUgraphExec exec = nullptr;

  Graph(const Pair& pair, int rank, ncclComm_t comm, CUstream stream,
        int mode = kCaptureThreadLocal) {
    EXPECT_EQ(cuStreamBeginCapture_v2(stream, mode), kCudaSuccess);
    EXPECT_EQ(rank == 0 ? Send(pair.from, pair.bytes, 1, comm, stream)
                        : Receive(pair.to, pair.bytes, 0, comm, stream),
              kNcclSuccess);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), kCudaSuccess);
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), kCudaSuccess);
  }
};

TEST(Capture, RunsThreeTimesAndMessagesGoOn) {
  RunTwo(kWarm, [&](Ranks& /*two*/, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    const Graph graph(pair, rank, comm, stream);
    for (int turn = 0; turn < 3; ++turn) {
      if (rank == 0) {
        ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(kBytes, turn).data(), kBytes), kCudaSuccess);
      }
      ASSERT_EQ(cuGraphLaunch(graph.exec, stream), kCudaSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      if (rank == 1) {
        EXPECT_EQ(Fetch(pair.to, kBytes), Pattern(kBytes, turn));
      }
    }
    // The lane from rank 0 to rank 1 is closed now; the lane back is not.
    const uint64_t before = NativeSends();
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(Exchange(pair, round, rank, 1 - rank, comm, stream), kNcclSuccess);
    }
    EXPECT_EQ(NativeSends() - before, rank == 0 ? 3U : 0U);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// A capture in CUDA's global mode forbids unsafe calls to all threads. Creating a lane, mapping
// memory and querying events must not end it.
TEST(Capture, OfAllThreadsGoesOnWhateverElseIsDone) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comms[] = {Init(two, 2, rank), Init(two, 2, rank)};
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    for (ncclComm_t comm : comms) {
      if (comm == comms[1]) {
        ASSERT_EQ(Exchange(pair, 0, rank, 1 - rank, comm, stream), kNcclSuccess);
        two.Meet();
      }
      std::atomic<bool> over = false;
      std::thread watchdog([&] {
        while (!over.load()) {
          ncclResult_t error = kNcclSuccess;
          EXPECT_EQ(ncclCommGetAsyncError(comm, &error), kNcclSuccess);
          EXPECT_EQ(error, kNcclSuccess);
        }
      });
      const Graph graph(pair, rank, comm, stream, kCaptureGlobal);
      over.store(true);
      watchdog.join();
      ASSERT_NE(graph.exec, nullptr);
      const std::vector<uint8_t> bytes = Pattern(kBytes, 5);
      if (rank == 0) {
        ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, bytes.data(), kBytes), kCudaSuccess);
      }
      ASSERT_EQ(cuGraphLaunch(graph.exec, stream), kCudaSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
      if (rank == 1) {
        EXPECT_EQ(Fetch(pair.to, kBytes), bytes);
      }
      two.Meet();
    }
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// The peer calls directly, after the captured message, and finds the lane closed.
TEST(Capture, OnOneSideAlone) {
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    const std::vector<uint8_t> bytes = Pattern(kBytes, 77);
    if (rank == 0) {
      ASSERT_EQ(cuMemcpyHtoD_v2(pair.from, bytes.data(), kBytes), kCudaSuccess);
      const Graph graph(pair, rank, comm, stream);
      two.Meet();
      ASSERT_EQ(cuGraphLaunch(graph.exec, stream), kCudaSuccess);
    } else {
      two.Meet();
      ASSERT_EQ(Receive(pair.to, kBytes, 0, comm, stream), kNcclSuccess);
    }
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    if (rank == 1) {
      EXPECT_EQ(Fetch(pair.to, kBytes), bytes);
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// A captured all-to-all in one group, with memory that no peer has mapped yet.
struct AllToAll {
  std::vector<Pair> pairs;  // by peer
  CUgraphExec exec = nullptr;

  explicit AllToAll(int ranks) {
    for (int peer = 0; peer < ranks; ++peer) pairs.push_back(NewPair(kBytes));
  }

  void Capture(int rank, ncclComm_t comm, CUstream stream) {
    EXPECT_EQ(cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), kCudaSuccess);
    Call(rank, comm, stream);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), kCudaSuccess);
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), kCudaSuccess);
  }

  void Call(int rank, ncclComm_t comm, CUstream stream) const {
    EXPECT_EQ(ncclGroupStart(), kNcclSuccess);
    for (size_t peer = 0; peer < pairs.size(); ++peer) {
      if (static_cast<int>(peer) == rank) continue;
      EXPECT_EQ(Send(pairs[peer].from, kBytes, static_cast<int>(peer), comm, stream), kNcclSuccess);
      EXPECT_EQ(Receive(pairs[peer].to, kBytes, static_cast<int>(peer), comm, stream),
                kNcclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), kNcclSuccess);
  }

  // Runs once with new contents, by the graph or directly.
  void Run(int turn, int rank, ncclComm_t comm, CUstream stream, bool directly = false) const {
    const auto content = [&](size_t from, size_t to) {
      return Pattern(kBytes, turn * 100 + static_cast<int>(from) * 10 + static_cast<int>(to));
    };
    const auto mine = static_cast<size_t>(rank);
    for (size_t peer = 0; peer < pairs.size(); ++peer) {
      EXPECT_EQ(cuMemcpyHtoD_v2(pairs[peer].from, content(mine, peer).data(), kBytes),
                kCudaSuccess);
    }
    if (directly) {
      Call(rank, comm, stream);
    } else {
      EXPECT_EQ(cuGraphLaunch(exec, stream), kCudaSuccess);
    }
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; })) << "turn " << turn;
    for (size_t peer = 0; peer < pairs.size(); ++peer) {
      if (peer == mine) continue;
      EXPECT_EQ(Fetch(pairs[peer].to, kBytes), content(peer, mine)) << "turn " << turn;
    }
  }
};

// Both ranks of each message capture it, so the graphs contain the copies.
TEST(Capture, OfGroupsOnAllSides) {
  constexpr int kRanks = 3;
  Ranks three(kRanks);
  three.Run([&](int rank) {
    ncclComm_t comm = Init(three, kRanks, rank);
    CUstream stream = NewStream();
    // NCCL connects all ranks.
    AllToAll(kRanks).Call(rank, comm, stream);
    ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
    three.Meet();
    const uint64_t before = NativeSends();
    AllToAll second(kRanks);
    AllToAll third(kRanks);
    second.Capture(rank, comm, stream);
    third.Capture(rank, comm, stream);
    EXPECT_EQ(NativeSends(), before) << "none is NCCL's";
    for (int turn = 0; turn < 4; ++turn) {
      second.Run(2 * turn, rank, comm, stream);
      third.Run(2 * turn + 1, rank, comm, stream);
    }
    EXPECT_EQ(NativeSends(), before);
    // Direct messages work at the same time.
    for (int turn = 8; turn < 8 + kWarm; ++turn) {
      second.Run(turn, rank, comm, stream, true);
      three.Meet();
    }
    EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(kWarm * (kRanks - 1)));
    second.Run(20, rank, comm, stream);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// A graph that waits for a killed rank ends its wait, and the other ranks get an error.
TEST(Capture, OfAPeerThatIsKilled) {
  Ranks two(2);
  two.Run(
      [&](int rank) {
        ncclComm_t comm = Init(two, 2, rank);
        CUstream stream = NewStream();
        AllToAll(2).Call(rank, comm, stream);
        ASSERT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
        two.Meet();
        AllToAll graph(2);
        graph.Capture(rank, comm, stream);
        graph.Run(1, rank, comm, stream);
        two.Meet();
        if (rank == 1) kill(getpid(), SIGKILL);
        ASSERT_EQ(cuGraphLaunch(graph.exec, stream), kCudaSuccess);
        EXPECT_TRUE(LearnsOfAnError(comm));
        EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
        EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
        std::printf("peer lost\n");
      },
      1);
}

// The peer posted the message first, directly and for a copy engine.
TEST(Capture, BehindADirectCallOfThePeerIsAnError) {
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    if (rank == 1) {
      ASSERT_EQ(Receive(pair.to, kBytes, 0, comm, stream), kNcclSuccess);
    }
    two.Meet();
    if (rank == 0) {
      ASSERT_EQ(cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), kCudaSuccess);
      EXPECT_EQ(Send(pair.from, kBytes, 1, comm, stream), kNcclInvalidUsage);
      CUgraph graph = nullptr;
      cuStreamEndCapture(stream, &graph);
    } else {
      EXPECT_TRUE(LearnsOfAnError(comm));
      EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
    }
    two.Meet();
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
