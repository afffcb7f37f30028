// SPDX-License-Identifier: Apache-2.0
// Small messages of two ranks: groups that are repeated, and everything that can come between them.
#include "sendrecv/whole/case.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kSmall = 4000;

CUdeviceptr Word() {
  const CUdeviceptr word = Fill(sizeof(uint32_t), -1);
  EXPECT_EQ(cuMemsetD8_v2(word, 0, sizeof(uint32_t)), kCudaSuccess);
  return word;
}

// A rank, with the buffers for its exchanges.
struct Rank {
  Member own;
  ncclComm_t other = nullptr;
  CUstream beside = NewStream();
  Pair small = NewPair(kSmall);
  Pair more = NewPair(kSmall);
  Pair large = NewPair(kBytes);
  CUdeviceptr data = Fill(kSmall, 0);
  CUdeviceptr word = Word();

  void Send(const Pair& pair) const { own.With(pair).Send(); }
  void Receive(const Pair& pair) const { own.With(pair).Receive(); }
  void Both(const Pair& pair) const {
    Send(pair);
    Receive(pair);
  }
  Rank In(CUstream stream) const {
    Rank there = *this;
    there.own.stream = stream;
    return there;
  }
  // Exchanges messages while the other stream waits.
  void BothAlone(const Pair& pair, CUstream where, CUstream waits) const {
    EXPECT_EQ(cuStreamWaitValue32_v2(waits, word, 1, kWaitGeq), kCudaSuccess);
    Grouped([&] { In(where).Both(pair); });
    EXPECT_TRUE(In(where).own.Ends());
    const uint32_t values[] = {1, 0};
    EXPECT_EQ(cuMemcpyHtoD_v2(word, &values[0], sizeof(uint32_t)), kCudaSuccess);
    EXPECT_TRUE(In(waits).own.Ends());
    EXPECT_EQ(cuMemcpyHtoD_v2(word, &values[1], sizeof(uint32_t)), kCudaSuccess);
  }
  void Broadcast() const {
    EXPECT_EQ(ncclBroadcast(At(data), At(data), kSmall, kNcclUint8, 0, own.comm, own.stream),
              kNcclSuccess);
  }
};

// One kind of group: how many small messages it has, and between which buffers.
struct Shape {
  std::function<void(const Rank&)> run;
  int messages = 2;
  std::vector<Pair Rank::*> pairs = {&Rank::small};
};

std::vector<Shape> Shapes() {
  const auto usual = [](const Rank& all) { Grouped([&] { all.Both(all.small); }); };
  return {
      {usual},
      {[](const Rank& all) {
        Grouped([&] {
          all.Receive(all.small);
          all.Send(all.small);
        });
      }},
      {[](const Rank& all) {
        Grouped([&] {
          const Member own = all.own.With(all.small);
          EXPECT_EQ(
              ncclSend(At(own.pair.from), kSmall / 4, kNcclInt32, own.peer, own.comm, own.stream),
              kNcclSuccess);
          EXPECT_EQ(
              ncclRecv(At(own.pair.to), kSmall / 4, kNcclInt32, own.peer, own.comm, own.stream),
              kNcclSuccess);
        });
      }},
      {[](const Rank& all) { all.BothAlone(all.small, all.own.stream, all.beside); }},
      {[](const Rank& all) { all.BothAlone(all.small, all.beside, all.own.stream); }},
      // The receiver posts the two messages in the opposite order. They are of two communicators.
      {[](const Rank& all) {
         Rank with_other = all;
         with_other.own.comm = all.other;
         for (const int sender : {0, 1}) {
           if (all.own.rank == sender) {
             all.Send(all.small);
             with_other.Send(all.more);
           } else {
             with_other.Receive(all.more);
             all.Receive(all.small);
           }
         }
       },
       4,
       {&Rank::small, &Rank::more}},
      {[](const Rank& all) {
        Grouped([&] { all.In(all.beside).Send(all.small), all.Receive(all.small); });
      }},
      // Two exchanges in one group, which has twice as many calls as the usual group.
      {[](const Rank& all) {
         Grouped([&] {
           all.Both(all.small);
           all.Both(all.more);
         });
       },
       4,
       {&Rank::small, &Rank::more}},
      // Like the usual group, but with large messages.
      {[](const Rank& all) { Grouped([&] { all.Both(all.large); }); }, 0, {&Rank::large}},
      {[&](const Rank& all) {
         Grouped([&] {
           all.Both(all.small);
           all.Both(all.large);
         });
       },
       2,
       {&Rank::small, &Rank::large}},
      {[](const Rank& all) {
         Grouped([&] {
           all.Both(all.large);
           all.Both(all.small);
         });
       },
       2,
       {&Rank::small, &Rank::large}},
      {[](const Rank& all) {
        Grouped([&] {
          all.Both(all.small);
          all.Broadcast();
        });
      }},
      {[](const Rank& all) {
        Grouped([&] {
          all.Broadcast();
          all.Both(all.small);
        });
      }},
      // Each message in its own group.
      {[](const Rank& all) {
        if (all.own.rank == 0) all.Send(all.small);
        all.Receive(all.small);
        if (all.own.rank == 1) all.Send(all.small);
      }},
      {[&](const Rank& all) {
        Grouped([&] {
          Grouped([&] { all.Send(all.small); });
          all.Receive(all.small);
        });
      }},
      {[](const Rank& all) {
        all.Broadcast();
        Grouped([&] { all.Both(all.small); });
        all.Broadcast();
      }},
      // Messages without bytes.
      {[](const Rank& all) {
         Grouped([&] {
           Pair empty = all.small;
           empty.bytes = 0;
           all.Both(empty);
         });
       },
       0,
       {}},
      {[](const Rank&) { Grouped([] {}); }, 0, {}},
  };
}

void Check(const Rank& all, const Shape& shape, int round) {
  const std::vector<Pair Rank::*> pairs = {&Rank::small, &Rank::more, &Rank::large};
  for (const auto& each : pairs) {
    const Member own = all.own.With(all.*each);
    own.Put(10 * round + own.rank);
    own.Clear();
  }
  shape.run(all);
  for (CUstream stream : {all.own.stream, all.beside}) {
    ASSERT_TRUE(all.In(stream).own.Ends()) << "round " << round;
  }
  for (const auto& each : pairs) {
    const Pair& pair = all.*each;
    const bool used = std::ranges::find(shape.pairs, each) != shape.pairs.end();
    const std::vector<uint8_t> untouched(pair.bytes, 0xEE);
    EXPECT_EQ(Fetch(pair.to, pair.bytes),
              used ? Pattern(pair.bytes, 10 * round + all.own.peer) : untouched)
        << "round " << round;
  }
}

// The number of exchanges is printed, and compared with the library's count.
TEST(Small, GroupsThatComeAgainAndOthers) {
  RunTwo(0, [](const Member& own) {
    Rank all = {.own = own, .other = Init(own.ranks, 2, own.rank)};
    const std::vector<Shape> shapes = Shapes();
    std::mt19937 random(7);
    int messages = 0;
    int round = 0;
    while (round < 200 && !testing::Test::HasFailure()) {
      const size_t kind = random() % shapes.size();
      const auto times = static_cast<int>(1 + random() % 4);
      for (int i = 0; i < times; ++i) {
        ASSERT_NO_FATAL_FAILURE(Check(all, shapes[kind], ++round)) << kind;
        messages += shapes[kind].messages;
      }
      own.Meet();
      if (random() % 8 == 0) {
        // The next communicator may get the same address.
        all.own.Destroy();
        all.own.comm = Init(own.ranks, 2, own.rank);
      }
    }
    all.own.Destroy();
    EXPECT_EQ(ncclCommDestroy(all.other), kNcclSuccess);
    std::printf("exchanged: small: %d messages\n", messages);
  });
}

// Each thread has its own communicator. Three sets of threads run one after another.
TEST(Small, GroupsOfThreadsThatEnd) {
  Ranks two(2);
  two.Run([&](int rank) {
    for (int turn = 0; turn < 3; ++turn) {
      ncclComm_t comms[] = {Init(two, 2, rank), Init(two, 2, rank)};
      std::vector<std::thread> threads;
      for (ncclComm_t comm : comms) {
        threads.emplace_back([&two, rank, comm] {
          UseGpu(rank);
          const Member own = {.ranks = two, .rank = rank, .comm = comm, .pair = NewPair(kSmall)};
          for (int round = 0; round < 300; ++round) {
            if (own.Exchange(round) != kNcclSuccess) {
              ADD_FAILURE() << "round " << round;
              return;
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    }
  });
}

// Repeated groups have no event, so the loss of the peer must be found without one.
TEST(Small, GroupsWithAPeerThatIsKilled) {
  RunRanks(
      2, 0,
      [](Member& own) {
        own.pair = NewPair(kSmall);
        own.Warm(1);
        const int times = own.rank == 0 ? 6 : 3;
        for (int i = 0; i < times; ++i) {
          Grouped([&] {
            own.Send();
            own.Receive();
          });
        }
        if (own.rank == 1) own.Wait();
        own.Meet();
        if (own.rank == 1) kill(getpid(), SIGKILL);
        EXPECT_TRUE(LearnsOfAnError(own.comm));
        EXPECT_EQ(cuStreamQuery(own.stream), kNotReady);
        own.Abort();
        EXPECT_TRUE(own.Ends());
        std::printf("peer lost\n");
      },
      1);
}

}  // namespace
}  // namespace nccltune::sendrecv
