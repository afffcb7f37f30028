// SPDX-License-Identifier: Apache-2.0
//
// Small messages of two ranks: groups that are repeated, and everything that can come between them.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

constexpr size_t kSmall = 4000;

void Grouped(const std::function<void()>& calls) {
  EXPECT_EQ(ncclGroupStart(), kNcclSuccess);
  calls();
  EXPECT_EQ(ncclGroupEnd(), kNcclSuccess);
}

CUdeviceptr Word() {
  const CUdeviceptr word = Fill(sizeof(uint32_t), -1);
  EXPECT_EQ(cuMemsetD8_v2(word, 0, sizeof(uint32_t)), kCudaSuccess);
  return word;
}

// A rank, with the buffers for its exchanges.
struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  ncclComm_t other = nullptr;
  CUstream stream = NewStream();
  CUstream beside = NewStream();
  Pair small = NewPair(kSmall);
  Pair more = NewPair(kSmall);
  Pair large = NewPair(kBytes);
  CUdeviceptr data = Fill(kSmall, 0);
  CUdeviceptr word = Word();

  int peer() const { return 1 - rank; }
  void Send(const Pair& pair, CUstream where = nullptr) const {
    EXPECT_EQ(sendrecv::Send(pair.from, pair.bytes, peer(), comm, Where(where)), kNcclSuccess);
  }
  void Receive(const Pair& pair, CUstream where = nullptr) const {
    EXPECT_EQ(sendrecv::Receive(pair.to, pair.bytes, peer(), comm, Where(where)), kNcclSuccess);
  }
  void Both(const Pair& pair, CUstream where = nullptr) const {
    Send(pair, where);
    Receive(pair, where);
  }
  // Exchanges messages while the stream beside it waits.
  void BothAlone(const Pair& pair, CUstream where, CUstream waits) const {
    EXPECT_EQ(cuStreamWaitValue32_v2(waits, word, 1, kWaitGeq), kCudaSuccess);
    Grouped([&] { Both(pair, where); });
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(where) != kNotReady; }));
    const uint32_t values[] = {1, 0};
    EXPECT_EQ(cuMemcpyHtoD_v2(word, &values[0], sizeof(uint32_t)), kCudaSuccess);
    EXPECT_TRUE(Soon([&] { return cuStreamQuery(waits) != kNotReady; }));
    EXPECT_EQ(cuMemcpyHtoD_v2(word, &values[1], sizeof(uint32_t)), kCudaSuccess);
  }
  void Broadcast() const {
    EXPECT_EQ(ncclBroadcast(At(data), At(data), kSmall, kNcclUint8, 0, comm, stream), kNcclSuccess);
  }

 private:
  CUstream Where(CUstream where) const { return where == nullptr ? stream : where; }
};

// One kind of group: how many small messages it has, and between which buffers.
struct Shape {
  std::function<void(const Rank&)> run;
  int messages = 2;
  std::vector<Pair Rank::*> pairs = {&Rank::small};
};

std::vector<Shape> Shapes() {
  const auto usual = [](const Rank& own) { Grouped([&] { own.Both(own.small); }); };
  return {
      {usual},
      {[](const Rank& own) {
        Grouped([&] {
          own.Receive(own.small);
          own.Send(own.small);
        });
      }},
      {[](const Rank& own) {
        Grouped([&] {
          EXPECT_EQ(ncclSend(At(own.small.from), kSmall / 4, kNcclInt32, own.peer(), own.comm,
                             own.stream),
                    kNcclSuccess);
          EXPECT_EQ(
              ncclRecv(At(own.small.to), kSmall / 4, kNcclInt32, own.peer(), own.comm, own.stream),
              kNcclSuccess);
        });
      }},
      {[](const Rank& own) { own.BothAlone(own.small, own.stream, own.beside); }},
      {[](const Rank& own) { own.BothAlone(own.small, own.beside, own.stream); }},
      // The receiver posts the two messages in the opposite order. They are of two communicators.
      {[](const Rank& own) {
         Rank with_other = own;
         std::swap(with_other.comm, with_other.other);
         for (const int sender : {0, 1}) {
           if (own.rank == sender) {
             own.Send(own.small);
             with_other.Send(own.more);
           } else {
             with_other.Receive(own.more);
             own.Receive(own.small);
           }
         }
       },
       4,
       {&Rank::small, &Rank::more}},
      {[](const Rank& own) {
        Grouped([&] { own.Send(own.small, own.beside), own.Receive(own.small); });
      }},
      // Two exchanges in one group, which has twice as many calls as the usual group.
      {[](const Rank& own) {
         Grouped([&] {
           own.Both(own.small);
           own.Both(own.more);
         });
       },
       4,
       {&Rank::small, &Rank::more}},
      // Like the usual group, but with large messages.
      {[](const Rank& own) { Grouped([&] { own.Both(own.large); }); }, 0, {&Rank::large}},
      {[&](const Rank& own) {
         Grouped([&] {
           own.Both(own.small);
           own.Both(own.large);
         });
       },
       2,
       {&Rank::small, &Rank::large}},
      {[](const Rank& own) {
         Grouped([&] {
           own.Both(own.large);
           own.Both(own.small);
         });
       },
       2,
       {&Rank::small, &Rank::large}},
      {[](const Rank& own) {
        Grouped([&] {
          own.Both(own.small);
          own.Broadcast();
        });
      }},
      {[](const Rank& own) {
        Grouped([&] {
          own.Broadcast();
          own.Both(own.small);
        });
      }},
      // Each message in its own group.
      {[](const Rank& own) {
        if (own.rank == 0) own.Send(own.small);
        own.Receive(own.small);
        if (own.rank == 1) own.Send(own.small);
      }},
      {[&](const Rank& own) {
        Grouped([&] {
          Grouped([&] { own.Send(own.small); });
          own.Receive(own.small);
        });
      }},
      {[](const Rank& own) {
        own.Broadcast();
        Grouped([&] { own.Both(own.small); });
        own.Broadcast();
      }},
      // Messages without bytes.
      {[](const Rank& own) {
         Grouped([&] {
           Pair empty = own.small;
           empty.bytes = 0;
           own.Both(empty);
         });
       },
       0,
       {}},
      {[](const Rank&) { Grouped([] {}); }, 0, {}},
  };
}

void Check(const Rank& own, const Shape& shape, int round) {
  const std::vector<Pair Rank::*> all = {&Rank::small, &Rank::more, &Rank::large};
  for (const auto& each : all) {
    const Pair& pair = own.*each;
    ASSERT_EQ(
        cuMemcpyHtoD_v2(pair.from, Pattern(pair.bytes, 10 * round + own.rank).data(), pair.bytes),
        kCudaSuccess);
    ASSERT_EQ(cuMemsetD8_v2(pair.to, 0xEE, pair.bytes), kCudaSuccess);
  }
  shape.run(own);
  for (CUstream stream : {own.stream, own.beside}) {
    ASSERT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; })) << "round " << round;
  }
  for (const auto& each : all) {
    const Pair& pair = own.*each;
    const bool used = std::ranges::find(shape.pairs, each) != shape.pairs.end();
    const std::vector<uint8_t> untouched(pair.bytes, 0xEE);
    EXPECT_EQ(Fetch(pair.to, pair.bytes),
              used ? Pattern(pair.bytes, 10 * round + own.peer()) : untouched)
        << "round " << round;
  }
}

// The number of exchanges is printed, and compared with the library's count.
TEST(Small, GroupsThatComeAgainAndOthers) {
  Ranks two(2);
  two.Run([&](int rank) {
    Rank own = {.rank = rank, .comm = Init(two, 2, rank), .other = Init(two, 2, rank)};
    const std::vector<Shape> shapes = Shapes();
    std::mt19937 random(7);
    int messages = 0;
    int round = 0;
    while (round < 200 && !testing::Test::HasFailure()) {
      const size_t kind = random() % shapes.size();
      const auto times = static_cast<int>(1 + random() % 4);
      for (int i = 0; i < times; ++i) {
        ASSERT_NO_FATAL_FAILURE(Check(own, shapes[kind], ++round)) << kind;
        messages += shapes[kind].messages;
      }
      two.Meet();
      if (random() % 8 == 0) {
        // The next communicator may get the same address.
        EXPECT_EQ(ncclCommDestroy(own.comm), kNcclSuccess);
        own.comm = Init(two, 2, rank);
      }
    }
    EXPECT_EQ(ncclCommDestroy(own.comm), kNcclSuccess);
    EXPECT_EQ(ncclCommDestroy(own.other), kNcclSuccess);
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
        threads.emplace_back([rank, comm] {
          UseGpu(rank);
          CUstream stream = NewStream();
          const Pair pair = NewPair(kSmall);
          for (int round = 0; round < 300; ++round) {
            if (Exchange(pair, round, rank, 1 - rank, comm, stream) != kNcclSuccess) {
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
  Ranks two(2);
  two.Run(
      [&](int rank) {
        ncclComm_t comm = Init(two, 2, rank);
        CUstream stream = NewStream();
        const Pair pair = NewPair(kSmall);
        ASSERT_EQ(Exchange(pair, 0, rank, 1 - rank, comm, stream), kNcclSuccess);
        two.Meet();
        const int times = rank == 0 ? 6 : 3;
        for (int i = 0; i < times; ++i) {
          Grouped([&] {
            EXPECT_EQ(Send(pair.from, kSmall, 1 - rank, comm, stream), kNcclSuccess);
            EXPECT_EQ(Receive(pair.to, kSmall, 1 - rank, comm, stream), kNcclSuccess);
          });
        }
        if (rank == 1) {
          EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
        }
        two.Meet();
        if (rank == 1) kill(getpid(), SIGKILL);
        EXPECT_TRUE(LearnsOfAnError(comm));
        EXPECT_EQ(cuStreamQuery(stream), kNotReady);
        EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
        EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
        std::printf("peer lost\n");
      },
      1);
}

// NCCL refuses a repeated group. Its messages never run, so they must not be counted. Both ranks
// must still number the next large message alike. Later groups are not affected.
TEST(Small, AGroupThatIsRefusedIsNotCounted) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair small = NewPair(kSmall);
    const Pair large = NewPair(kBytes);
    Warm(two, large, rank, comm, stream);
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(Exchange(small, round, rank, 1 - rank, comm, stream), kNcclSuccess);
    }
    if (rank == 0) {
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      EXPECT_EQ(Send(small.from, kSmall, 1, comm, stream), kNcclSuccess);
      EXPECT_EQ(Receive(small.to, kSmall, 1, comm, stream), kNcclSuccess);
      ncclComm_t made = nullptr;
      EXPECT_EQ(ncclCommGrow(comm, 2, nullptr, -1, &made, nullptr), kNcclInvalidArgument);
      EXPECT_EQ(ncclGroupEnd(), kNcclInvalidArgument);
    }
    const uint64_t sends = NativeSends();
    softNcclTrace();
    ASSERT_EQ(Exchange(large, 9, rank, 1 - rank, comm, stream), kNcclSuccess);
    EXPECT_EQ(NativeSends(), sends);
    const std::string trace = softNcclTrace();
    EXPECT_EQ(trace.find("GroupEnd"), trace.rfind("GroupEnd")) << trace;
    two.Meet();
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
