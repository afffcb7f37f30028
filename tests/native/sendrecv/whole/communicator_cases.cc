// SPDX-License-Identifier: Apache-2.0
// Communicators that are created and ended: split, shrunk, aborted, in groups and in threads.
#include "sendrecv/whole/case.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

// Exchanges messages and checks that copy engines carried some of them.
void ExchangeSome(const Member& own) {
  const uint64_t before = NativeSends();
  for (int round = 0; round < 2 * kWarm; ++round) ASSERT_EQ(own.Exchange(round), kNcclSuccess);
  EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(2 * kWarm));
}

ncclComm_t Split(const Member& own, int color, int key, ncclConfig_t* config = nullptr) {
  ncclComm_t made = nullptr;
  EXPECT_EQ(ncclCommSplit(own.comm, color, key, &made, config), kNcclSuccess);
  return made;
}

TEST(Comms, SplitAndShrunk) {
  RunRanks(3, 0, [](const Member& own) {
    const int rank = own.rank;
    for (int turn = 0; turn < 2; ++turn) {
      ncclComm_t half = Split(own, rank == 2 ? kNcclNoColor : 1, -rank);
      // In the split communicator the ranks have the opposite order.
      if (rank != 2) {
        const Member in_half = own.In(half, 1 - rank, rank);
        ExchangeSome(in_half);
        in_half.Destroy();
      } else {
        EXPECT_EQ(half, nullptr);
      }
    }
    if (rank != 1) {
      int excluded = 1;
      ncclComm_t rest = nullptr;
      ASSERT_EQ(ncclCommShrink(own.comm, &excluded, 1, &rest, nullptr, 0), kNcclSuccess);
      const Member in_rest = own.In(rest, rank / 2, 1 - rank / 2);
      ExchangeSome(in_rest);
      in_rest.Destroy();
    }
    // The first communicator still works.
    if (rank != 2) ExchangeSome(own);
    own.Destroy();
    Free(own.pair);
  });
}

// Both ranks of a communicator in one process. `body` gets a member for each.
void RunTwoGpus(const std::function<void(const std::vector<Member>&)>& body) {
  Ranks one(1);
  one.Run([&](int) {
    ncclComm_t comms[2] = {};
    EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), kNcclSuccess);
    std::vector<Member> members;
    for (int gpu = 0; gpu < 2; ++gpu) {
      UseGpu(gpu);
      members.push_back({.ranks = one, .rank = gpu, .comm = comms[gpu]});
    }
    body(members);
    EXPECT_LT(NativeSends(), static_cast<uint64_t>(4 * kWarm));
    for (const Member& each : members) {
      UseGpu(each.rank);
      each.Destroy();
      Free(each.pair);
    }
  });
}

TEST(Comms, OneThreadForTwoGpus) {
  RunTwoGpus([](const std::vector<Member>& both) {
    for (int round = 0; round < 2 * kWarm; ++round) {
      for (const Member& each : both) {
        UseGpu(each.rank);
        each.Put(2 * round + each.rank);
      }
      Grouped([&] {
        for (const Member& each : both) {
          each.Send();
          each.Receive();
        }
      });
      for (const Member& each : both) {
        UseGpu(each.rank);
        each.Wait();
        each.ExpectReceived(2 * round + each.peer);
      }
    }
  });
}

TEST(Comms, AThreadForEachGpu) {
  RunTwoGpus([](const std::vector<Member>& both) {
    const auto drive = [](const Member& own) {
      UseGpu(own.rank);
      own.Put(own.rank);
      for (int round = 0; round < 2 * kWarm; ++round) {
        own.Clear();
        Grouped([&] {
          own.Send();
          own.Receive();
        });
        own.Wait();
        own.ExpectReceived(own.peer);
      }
    };
    std::thread other(drive, both[1]);
    drive(both[0]);
    other.join();
  });
}

ncclUniqueId NewId(Ranks& ranks, int rank) {
  if (rank == 0) {
    EXPECT_EQ(ncclGetUniqueId(&ranks.shared().id), kNcclSuccess);
  }
  ranks.Meet();
  return ranks.shared().id;
}

TEST(Comms, MadeInAGroup) {
  Ranks two(2);
  two.Run([&](int rank) {
    UseGpu(rank);
    const ncclUniqueId id = NewId(two, rank);
    ncclComm_t comm = nullptr;
    Grouped([&] { EXPECT_EQ(ncclCommInitRank(&comm, 2, id, rank), kNcclSuccess); });
    const Member own = {.ranks = two, .rank = rank, .comm = comm};
    ExchangeSome(own);
    own.Destroy();
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
  const ncclUniqueId id = NewId(ranks, rank);
  ncclConfig_t config;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, count, id, rank, &config), kNcclInProgress);
  return comm;
}

// Runs ranks with a nonblocking communicator.
void RunLater(int count, const std::function<void(const Member&)>& body) {
  Ranks ranks(count);
  ranks.Run([&](int rank) {
    ncclComm_t comm = InitLater(ranks, count, rank);
    ASSERT_TRUE(IsDone(comm));
    body({.ranks = ranks, .rank = rank, .comm = comm});
  });
}

constexpr int kRounds = 4 * kWarm;

bool IsBegun(ncclResult_t result) { return result == kNcclSuccess || result == kNcclInProgress; }

// Like ExchangeSome, for a nonblocking communicator.
void ExchangeLater(const Member& own) {
  const uint64_t before = NativeSends();
  for (int round = 0; round < kRounds; ++round) {
    own.Meet();
    ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
    own.Send();
    own.Receive();
    ASSERT_TRUE(IsBegun(ncclGroupEnd()));
    ASSERT_TRUE(IsDone(own.comm));
  }
  own.Wait();
  EXPECT_LT(NativeSends() - before, static_cast<uint64_t>(2 * kWarm));
}

// Nonblocking communicators. The program polls NCCL until each call is complete, as it must.
TEST(Comms, ThatDoNotBlock) {
  RunLater(2, [](const Member& own) {
    ExchangeLater(own);
    own.Destroy();
    Free(own.pair);
  });
}

// One rank gets the handle of its child and sends before the other rank polls.
TEST(Comms, PartsOfOneThatDoesNotBlock) {
  RunLater(2, [](const Member& own) {
    const Pair pairs[] = {own.pair, NewPair(kBytes)};
    for (int turn = 0; turn < 2; ++turn) {
      ncclComm_t part = nullptr;
      // In the split communicator the ranks have the opposite order.
      if (turn == 1) {
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      }
      ASSERT_EQ(ncclCommSplit(own.comm, 1, -own.rank, &part, nullptr), kNcclSuccess);
      if (turn == 1) {
        ASSERT_EQ(ncclGroupEnd(), kNcclInProgress);
      }
      // To rank 0 there, from rank 1.
      const auto begin = [&] {
        ASSERT_TRUE(IsDone(own.comm));
        ASSERT_NE(part, nullptr);
        for (const Pair& each : pairs) {
          ASSERT_TRUE(IsBegun(
              own.rank == 0 ? ncclSend(At(each.from), kBytes, kNcclUint8, 0, part, own.stream)
                            : ncclRecv(At(each.to), kBytes, kNcclUint8, 1, part, own.stream)));
          ASSERT_TRUE(IsDone(part));
        }
        ASSERT_TRUE(own.Ends());
      };
      if (own.rank == 0) begin();
      own.Meet();
      if (own.rank == 1) {
        begin();
        for (const Pair& each : pairs) own.With(each).ExpectReceived(0);
      }
      const Member in_part = own.In(part, own.peer, own.rank);
      ExchangeLater(in_part);
      in_part.Destroy();
    }
    own.Destroy();
    EXPECT_EQ(CountSegments(), 0U);
    for (const Pair& each : pairs) Free(each);
  });
}

// Children of a child, and a shrunk communicator that some ranks are not part of.
TEST(Comms, PartsOfPartsThatDoNotBlock) {
  RunLater(3, [](const Member& own) {
    const int rank = own.rank;
    ncclComm_t half = nullptr;
    const int color = rank == 2 ? kNcclNoColor : 1;
    ASSERT_EQ(ncclCommSplit(own.comm, color, -rank, &half, nullptr), kNcclSuccess);
    ASSERT_TRUE(IsDone(own.comm));
    ASSERT_EQ(half == nullptr, rank == 2);
    ncclComm_t quarter = nullptr;
    if (rank != 2) {
      ncclConfig_t config;
      ASSERT_EQ(ncclCommSplit(half, 0, rank, &quarter, &config), kNcclSuccess);
      ASSERT_TRUE(IsDone(half));
      // This communicator blocks.
      ExchangeSome(own.In(quarter, rank, 1 - rank));
    }
    own.Meet();
    ncclComm_t rest = nullptr;
    if (rank != 1) {
      int excluded = 1;
      ASSERT_EQ(ncclCommShrink(own.comm, &excluded, 1, &rest, nullptr, 0), kNcclSuccess);
      ASSERT_TRUE(IsDone(own.comm));
      ExchangeLater(own.In(rest, rank / 2, 1 - rank / 2));
    } else {
      for (int round = 0; round < kRounds; ++round) own.Meet();
    }
    own.Meet();
    for (ncclComm_t each : {quarter, half, rest, own.comm}) {
      EXPECT_EQ(ncclCommDestroy(each), kNcclSuccess);
    }
    EXPECT_EQ(CountSegments(), 0U);
    Free(own.pair);
  });
}

// The parent is aborted while a child is being created. NCCL abandons the child, and the program
// gets its handle to abort it.
TEST(Comms, PartsOfOneThatIsAborted) {
  RunLater(2, [](const Member& own) {
    ncclComm_t part = nullptr;
    if (own.rank == 0) {
      ASSERT_EQ(ncclCommSplit(own.comm, 1, own.rank, &part, nullptr), kNcclSuccess);
    }
    own.Abort();
    EXPECT_EQ(part != nullptr, own.rank == 0);
    EXPECT_EQ(ncclCommAbort(part), kNcclSuccess);
    EXPECT_TRUE(Soon([] { return CountSegments() == 0; }));
  });
}

// Only one of the two ranks is nonblocking. Both must number the split communicators alike.
TEST(Comms, ThatBlockOnOneSide) {
  RunTwo(0, [](const Member& own) {
    ncclConfig_t config;
    config.blocking = own.rank;
    for (ncclConfig_t* const each : {&config, static_cast<ncclConfig_t*>(nullptr)}) {
      // Its parent blocks.
      const Member half = own.In(Split(own, 0, own.rank, each), own.rank, own.peer);
      ExchangeLater(half);
      own.Meet();
      half.Destroy();
    }
    own.Destroy();
    Free(own.pair);
  });
}

// The abort may come at any point of NCCL's work.
TEST(Comms, ThatDoNotBlockAndAreAborted) {
  Ranks two(2);
  two.Run([&](int rank) {
    EXPECT_EQ(ncclCommAbort(InitLater(two, 2, rank)), kNcclSuccess);
    two.Meet();
    ncclComm_t comm = InitLater(two, 2, rank);
    ASSERT_TRUE(IsDone(comm));
    const Member own = {.ranks = two, .rank = rank, .comm = comm};
    Member small = own;
    small.pair.bytes = 64;
    for (int round = 0; round < 2 * kWarm; ++round) {
      two.Meet();
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      // NCCL carries the small message in each group.
      for (const Member& each : {small, own}) {
        each.Send();
        each.Receive();
      }
      const ncclResult_t result = ncclGroupEnd();
      if (round + 1 == 2 * kWarm) {
        // The other rank may have aborted already.
        EXPECT_TRUE(result == kNcclInProgress || result == kNcclRemoteError) << result;
      } else {
        ASSERT_EQ(result, kNcclInProgress);
        ASSERT_TRUE(IsDone(comm));
        own.Wait();
      }
    }
    own.Abort();
    EXPECT_TRUE(own.Ends());
    two.Meet();
  });
}

// A receive without a send ends when another thread aborts. After that the program can create new
// communicators.
TEST(Comms, AnAbortEndsAReceiveAndThePeerLearnsOfIt) {
  RunTwo(0, [](Member& own) {
    ExchangeSome(own);
    own.Meet();
    own.Receive();
    own.Meet();
    if (own.rank == 0) {
      std::thread([&] { own.Abort(); }).join();
    } else {
      EXPECT_TRUE(LearnsOfAnError(own.comm));
      EXPECT_NE(ncclSend(At(own.pair.from), kBytes, kNcclUint8, 0, own.comm, own.stream),
                kNcclSuccess);
      own.Abort();
    }
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(own.stream) == kCudaSuccess; }));
    own.Meet();
    ASSERT_EQ(ncclCommInitRank(&own.comm, 2, NewId(own.ranks, own.rank), own.rank), kNcclSuccess);
    ExchangeSome(own);
    own.Destroy();
    Free(own.pair);
  });
}

// Some frameworks end a communicator by an abort.
TEST(Comms, AnAbortWhenAllIsOverIsNoErrorElsewhere) {
  RunRanks(3, 0, [](Member& own) {
    for (int first = 0; first < 3; ++first) {
      const int second = (first + 1) % 3;
      own.peer = own.rank == first ? second : first;
      if (own.rank == first || own.rank == second) ExchangeSome(own);
      own.Meet();
    }
    if (own.rank == 2) own.Abort();
    own.Meet();
    own.peer = 1 - own.rank;
    if (own.rank != 2) {
      ExchangeSome(own);
      own.Destroy();
    }
  });
}

// The peer learns of a rank that aborts and then ends at once.
TEST(Comms, AnAbortAndAnEndAreLearnedOf) {
  RunTwo(0, [](const Member& own) {
    ExchangeSome(own);
    own.Meet();
    if (own.rank == 1) own.Receive();
    own.Meet();
    if (own.rank == 0) {
      own.ranks.shared().numbers[0] = getpid();
      own.Abort();
    }
    own.Meet();
    if (own.rank == 0) return;
    AwaitEnd(own.ranks.shared().numbers[0]);
    EXPECT_TRUE(LearnsOfAnError(own.comm));
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(own.stream) == kCudaSuccess; }));
    own.Abort();
  });
}

// A dead rank's bytes never arrive. The work behind them in the stream must not run until the
// application has seen the error, or until 10 s have passed.
TEST(Comms, WhatWaitsForADeadRankWaitsUntilSomebodyKnows) {
  for (const bool asks : {true, false}) {
    RunRanks(
        2, 0,
        [asks](const Member& own) {
          ExchangeSome(own);
          if (own.rank == 0) own.Receive();
          own.Meet();
          if (own.rank == 1) kill(getpid(), SIGKILL);
          std::this_thread::sleep_for(std::chrono::seconds(2));
          EXPECT_EQ(cuStreamQuery(own.stream), kNotReady);
          if (!asks) {
            EXPECT_TRUE(own.Ends());
          }
          EXPECT_TRUE(LearnsOfAnError(own.comm));
          own.Abort();
          EXPECT_TRUE(own.Ends());
          std::printf("peer lost\n");
        },
        1);
  }
}

TEST(Comms, ComeAndGoWithoutATrace) {
  RunTwo(0, [](Member& own) {
    own.Destroy();
    size_t free = 0;
    size_t files = 0;
    size_t threads = 0;
    for (int turn = 0; turn < 20; ++turn) {
      ASSERT_EQ(ncclCommInitRank(&own.comm, 2, NewId(own.ranks, own.rank), own.rank), kNcclSuccess);
      own.Warm();
      // Posted after the receive as a send alone, so it is staged.
      if (own.rank == 1) own.Receive();
      own.Meet();
      if (own.rank == 0) own.Send();
      own.Wait();
      own.Meet();
      own.Destroy();
      own.Meet();
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
    Free(own.pair);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
