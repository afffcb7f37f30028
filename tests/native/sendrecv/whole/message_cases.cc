// SPDX-License-Identifier: Apache-2.0
// Messages between two or more ranks in separate processes.
#include "sendrecv/whole/case.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

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
    const char* const bytes = std::getenv("CASE_BYTES");
    const Member own = {
        .ranks = two,
        .rank = rank,
        .comm = comm,
        .pair = NewPair(bytes == nullptr ? 2 * kBytes : std::strtoull(bytes, nullptr, 10))};
    own.Warm(kWarm + 3);
    std::printf("rank %d: native %d, segments %zu, threads %zu\n", rank,
                static_cast<int>(NativeSends()), CountSegments(), CountThreads());
    // From here on nothing can be left behind in /dev/shm.
    EXPECT_EQ(CountNamedSegments(), 0U);
    two.Meet();
    own.Destroy();
    EXPECT_EQ(CountSegments(), 0U);
    Free(own.pair);
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
    const Member own = {.ranks = two, .rank = rank, .comm = comm, .pair = NewPair(2 * kBytes)};
    softCudaSpare(-1);
    ncclResult_t result = kNcclSuccess;
    for (int round = 0; round < kWarm + 3 && result == kNcclSuccess; ++round) {
      result = own.Exchange(round);
    }
    std::printf("rank %d: %s\n", rank, result == kNcclSuccess ? "all" : "error");
    // A rank must not abandon a peer that has not received a message yet.
    if (result == kNcclSuccess) {
      EXPECT_TRUE(own.Ends());
      two.Meet();
    }
    own.Abort();
    if (result != kNcclSuccess) {
      EXPECT_TRUE(own.Ends());
      two.Meet();
    }
    two.Meet();
  });
}

// The sends complete before they are received. Then their rank destroys the communicator, or just
// ends.
void ReceiveLate(bool destroy) {
  RunTwo(0, [&](const Member& own) {
    constexpr int kLast = kWarm + 2;
    for (int round = 0; round <= kLast; ++round) {
      if (own.rank == 0) {
        own.Put(round);
        own.Send();
        own.Wait();
        ASSERT_EQ(cuMemsetD8_v2(own.pair.from, 0xDD, kBytes), kCudaSuccess);
      }
      own.Meet();
      if (own.rank == 1) {
        // Longer than destroying a communicator takes otherwise. A process that ends waits for 5 s.
        const std::chrono::milliseconds late(destroy ? 1500 : 300);
        if (round == kLast) std::this_thread::sleep_for(late);
        own.Receive();
        own.Wait();
        own.ExpectReceived(round);
      }
      if (round != kLast) own.Meet();
    }
    if (own.rank == 1 || destroy) own.Destroy();
  });
}

TEST(Exchange, SendsThatAreReceivedLate) { ReceiveLate(true); }
TEST(Exchange, SendsOfAProcessThatEndsEarly) { ReceiveLate(false); }

// Rank 0 sends in a stream of a green context, as the second side and as the first.
TEST(Exchange, InAStreamOfAGreenContext) {
  RunTwo(kWarm, [](const Member& own) {
    if (own.rank == 0) softCudaGreen(own.stream);
    for (int round = 0; round < 2; ++round) {
      const int first = 1 - round;
      own.Put(round);
      if (own.rank != first) own.Meet();
      own.Transfer(0);
      if (own.rank == first) own.Meet();
      own.Wait();
      if (own.rank == 1) own.ExpectReceived(round);
      own.Meet();
    }
    own.Destroy();
  });
}

// Both ranks must report the message that rank 1 waits for.
TEST(Exchange, AReceiveThatIsAskedAbout) {
  RunTwo(kWarm, [](const Member& own) {
    if (own.rank == 1) own.Receive();
    own.Meet();
    // The stream reaches the receive after the call.
    EXPECT_TRUE(Soon([] {
      AwaitCheck();
      return CountReported("the first stream has reached it") != 0;
    }));
    const size_t before = CountReported("message 5, ");
    AwaitCheck();
    EXPECT_EQ(CountReported("message 5, ") - before, 2U);
    own.Meet();
    if (own.rank == 0) own.Send();
    own.Wait();
    own.Destroy();
  });
}

TEST(Wrong, SizesThatDifferAreAnErrorOnBothSides) {
  RunTwo(0, [](Member& own) {
    own.pair = NewPair(2 * kBytes);
    own.Warm();
    const ncclResult_t result =
        own.rank == 0 ? ncclSend(At(own.pair.from), 2 * kBytes, kNcclUint8, 1, own.comm, own.stream)
                      : ncclRecv(At(own.pair.to), kBytes, kNcclUint8, 0, own.comm, own.stream);
    if (result != kNcclSuccess) {
      EXPECT_EQ(result, kNcclInvalidUsage);
      std::printf("refused\n");
    } else {
      EXPECT_TRUE(LearnsOfAnError(own.comm));
      std::printf("peer lost\n");
    }
    EXPECT_TRUE(own.Ends());
    // Both ranks have seen the error before one of them ends.
    own.Meet();
    own.Abort();
  });
}

TEST(Memory, OfAPoolGoesByNccl) {
  RunTwo(0, [](Member& own) {
    ASSERT_EQ(cuMemAllocAsync(&own.pair.from, kBytes, own.stream), kCudaSuccess);
    ASSERT_EQ(cuMemAllocAsync(&own.pair.to, kBytes, own.stream), kCudaSuccess);
    own.Wait();
    own.Warm();
    EXPECT_EQ(NativeSends(), static_cast<uint64_t>(kWarm));
    own.Destroy();
  });
}

TEST(Memory, ThatComesAgainAtTheSameAddress) {
  RunTwo(0, [](Member& own) {
    for (int turn = 0; turn < 5; ++turn) {
      Free(own.pair);
      own.pair = NewPair(kBytes + static_cast<size_t>(turn));
      own.Warm();
    }
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(5 * kWarm));
    own.Destroy();
  });
}

// Closing its handle waits for all streams of the GPU, including those of another communicator.
TEST(Memory, ThatIsFreedWhileAnotherCommunicatorWaits) {
  constexpr size_t kLarge = size_t{150} << 20;
  RunTwo(0, [](Member& own) {
    ncclComm_t other = nullptr;
    ASSERT_EQ(ncclCommSplit(own.comm, 0, own.rank, &other, nullptr), kNcclSuccess);
    Member waiting = own.In(other, own.rank, own.peer);
    waiting.stream = NewStream();
    waiting.Warm();
    // Untouched memory costs nothing in the stand-in.
    const auto begin = [&] {
      EXPECT_EQ(cuMemAlloc_v2(&own.pair.from, kLarge), kCudaSuccess);
      EXPECT_EQ(cuMemAlloc_v2(&own.pair.to, kLarge), kCudaSuccess);
      own.Warm();
      own.Meet();
    };
    // More than peers keep mapped.
    for (int i = 0; i < 5; ++i) {
      begin();
      Free(own.pair);
    }
    if (own.rank == 0) waiting.Receive();
    begin();
    if (own.rank == 1) waiting.Send();
    waiting.Wait();
    Free(own.pair);
    own.Meet();
    // It is unmapped at the first exchange that finds all streams idle.
    const uint64_t before = NativeSends();
    constexpr int kTurns = 10;
    for (int i = 0; i < kTurns; ++i) {
      begin();
      Free(own.pair);
    }
    EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(kTurns * kWarm)) << "it is let go of";
    waiting.Destroy();
    own.Destroy();
  });
}

TEST(Memory, InTheMiddleOfAnAllocation) {
  RunTwo(0, [](Member& own) {
    const Pair whole = NewPair(4 * kBytes);
    const size_t off = kBytes + 4096 * static_cast<size_t>(own.rank + 1);
    own.pair = {.from = whole.from + off, .to = whole.to + 3 * off / 2, .bytes = kBytes};
    own.Warm(kWarm + 3);
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(kWarm + 3));
    // The bytes before and after the message are unchanged.
    EXPECT_EQ(Fetch(own.pair.to - 8, 8), std::vector<uint8_t>(8, 0xEE));
    EXPECT_EQ(Fetch(own.pair.to + kBytes, 8), std::vector<uint8_t>(8, 0xEE));
    own.Destroy();
    Free(whole);
  });
}

TEST(Group, OfACollectiveAndMessagesInTwoStreams) {
  RunTwo(0, [](const Member& own) {
    const Member other = own.With(NewPair(kBytes));
    CUstream beside = NewStream();
    const Member data = own.With({.from = Fill(1000, 0), .bytes = 1000});
    for (int round = 0; round < kWarm + 3; ++round) {
      for (const Member& each : {own, other}) {
        each.Put(round * 10 + own.rank);
        each.Clear();
      }
      data.Put(round * 10 + own.rank);
      Grouped([&] {
        for (const int i : {0, 1}) {
          Member each = i == 0 ? own : other;
          each.stream = i == 0 ? own.stream : beside;
          each.Send();
          // The two ranks may use different numbers of streams.
          each.stream = (i ^ own.rank) == 0 ? own.stream : beside;
          each.Receive();
        }
        void* const buffer = At(data.pair.from);
        EXPECT_EQ(ncclBroadcast(buffer, buffer, 1000, kNcclUint8, 0, own.comm, own.stream),
                  kNcclSuccess);
      });
      // All streams of a group wait for the whole group.
      ASSERT_EQ(cuStreamSynchronize(beside), kCudaSuccess);
      for (const Member& each : {own, other}) each.ExpectReceived(round * 10 + own.peer);
      own.Wait();
      EXPECT_EQ(Fetch(data.pair.from, 1000), Pattern(1000, round * 10));
      own.Meet();
    }
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(2 * (kWarm + 3)));
    own.Destroy();
  });
}

CUgraphExec Captured(CUstream stream, int mode, const std::function<void()>& calls) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuStreamBeginCapture_v2(stream, mode), kCudaSuccess);
  calls();
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), kCudaSuccess);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), kCudaSuccess);
  return exec;
}

// Captures the call for a message of rank 0.
CUgraphExec Captured(const Member& own, int mode = kCaptureThreadLocal) {
  return Captured(own.stream, mode, [&] { own.Transfer(0); });
}

void Launch(CUgraphExec exec, const Member& own) {
  EXPECT_EQ(cuGraphLaunch(exec, own.stream), kCudaSuccess);
}

TEST(Capture, RunsThreeTimesAndMessagesGoOn) {
  RunTwo(kWarm, [](const Member& own) {
    CUgraphExec graph = Captured(own);
    for (int turn = 0; turn < 3; ++turn) {
      own.Put(turn);
      Launch(graph, own);
      own.Wait();
      if (own.rank == 1) own.ExpectReceived(turn);
    }
    // The lane from rank 0 to rank 1 is closed now; the lane back is not.
    const uint64_t before = NativeSends();
    for (int round = 0; round < 3; ++round) ASSERT_EQ(own.Exchange(round), kNcclSuccess);
    EXPECT_EQ(NativeSends() - before, own.rank == 0 ? 3U : 0U);
    own.Destroy();
  });
}

// A capture in CUDA's global mode forbids unsafe calls to all threads. Creating a lane, mapping
// memory and querying events must not end it.
TEST(Capture, OfAllThreadsGoesOnWhateverElseIsDone) {
  RunTwo(0, [](const Member& own) {
    const Member other = own.In(Init(own.ranks, 2, own.rank), own.rank, own.peer);
    for (const Member& each : {own, other}) {
      if (each.comm == other.comm) each.Warm(1);
      std::atomic<bool> over = false;
      std::thread watchdog([&] {
        while (!over.load()) {
          ncclResult_t error = kNcclSuccess;
          EXPECT_EQ(ncclCommGetAsyncError(each.comm, &error), kNcclSuccess);
          EXPECT_EQ(error, kNcclSuccess);
        }
      });
      CUgraphExec graph = Captured(each, kCaptureGlobal);
      over.store(true);
      watchdog.join();
      ASSERT_NE(graph, nullptr);
      each.Put(5);
      Launch(graph, each);
      each.Wait();
      if (own.rank == 1) each.ExpectReceived(5);
      own.Meet();
    }
    own.Destroy();
    other.Destroy();
  });
}

// The peer calls directly, after the captured message, and finds the lane closed.
TEST(Capture, OnOneSideAlone) {
  RunTwo(kWarm, [](const Member& own) {
    if (own.rank == 0) {
      own.Put(77);
      CUgraphExec graph = Captured(own);
      own.Meet();
      Launch(graph, own);
    } else {
      own.Meet();
      own.Receive();
    }
    own.Wait();
    if (own.rank == 1) own.ExpectReceived(77);
    own.Destroy();
  });
}

// A captured all-to-all in one group, with memory that no peer has mapped yet.
struct AllToAll {
  const Member& own;
  std::vector<Member> members;  // by peer
  CUgraphExec exec = nullptr;

  AllToAll(const Member& rank, int ranks) : own(rank) {
    for (int peer = 0; peer < ranks; ++peer) {
      members.push_back(own.In(own.comm, own.rank, peer).With(NewPair(kBytes)));
    }
  }

  void Capture() {
    exec = Captured(own.stream, kCaptureThreadLocal, [&] { Call(); });
  }

  void Call() const {
    Grouped([&] {
      for (const Member& each : members) {
        if (each.peer == own.rank) continue;
        each.Send();
        each.Receive();
      }
    });
  }

  // Runs once with new contents, by the graph or directly.
  void Run(int turn, bool directly = false) const {
    for (const Member& each : members) each.Put(turn * 100 + own.rank * 10 + each.peer);
    if (directly) {
      Call();
    } else {
      Launch(exec, own);
    }
    EXPECT_TRUE(own.Ends()) << "turn " << turn;
    for (const Member& each : members) {
      if (each.peer != own.rank) each.ExpectReceived(turn * 100 + each.peer * 10 + own.rank);
    }
  }
};

// Both ranks of each message capture it, so the graphs contain the copies.
TEST(Capture, OfGroupsOnAllSides) {
  constexpr int kRanks = 3;
  RunRanks(kRanks, 0, [](const Member& own) {
    // NCCL connects all ranks.
    AllToAll(own, kRanks).Call();
    own.Wait();
    own.Meet();
    const uint64_t before = NativeSends();
    AllToAll second(own, kRanks);
    AllToAll third(own, kRanks);
    own.Meet();  // a capture waits a second for its peers
    second.Capture();
    third.Capture();
    EXPECT_EQ(NativeSends(), before) << "none is NCCL's";
    for (int turn = 0; turn < 4; ++turn) {
      second.Run(2 * turn);
      third.Run(2 * turn + 1);
    }
    EXPECT_EQ(NativeSends(), before);
    // Direct messages work at the same time.
    for (int turn = 8; turn < 8 + kWarm; ++turn) {
      second.Run(turn, true);
      own.Meet();
    }
    EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(kWarm * (kRanks - 1)));
    second.Run(20);
    own.Destroy();
  });
}

// A graph that waits for a killed rank ends its wait, and the other ranks get an error.
TEST(Capture, OfAPeerThatIsKilled) {
  RunRanks(
      2, 0,
      [](const Member& own) {
        AllToAll(own, 2).Call();
        own.Wait();
        own.Meet();
        AllToAll graph(own, 2);
        own.Meet();
        graph.Capture();
        graph.Run(1);
        own.Meet();
        if (own.rank == 1) kill(getpid(), SIGKILL);
        Launch(graph.exec, own);
        EXPECT_TRUE(LearnsOfAnError(own.comm));
        own.Abort();
        EXPECT_TRUE(own.Ends());
        std::printf("peer lost\n");
      },
      1);
}

// The peer posted the message first, directly and for a copy engine.
TEST(Capture, BehindADirectCallOfThePeerIsAnError) {
  RunTwo(kWarm, [](const Member& own) {
    if (own.rank == 1) own.Receive();
    own.Meet();
    if (own.rank == 0) {
      ASSERT_EQ(cuStreamBeginCapture_v2(own.stream, kCaptureThreadLocal), kCudaSuccess);
      EXPECT_EQ(ncclSend(At(own.pair.from), kBytes, kNcclUint8, 1, own.comm, own.stream),
                kNcclInvalidUsage);
      CUgraph graph = nullptr;
      cuStreamEndCapture(own.stream, &graph);
    } else {
      EXPECT_TRUE(LearnsOfAnError(own.comm));
      EXPECT_TRUE(own.Ends());
    }
    own.Meet();
    own.Abort();
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
