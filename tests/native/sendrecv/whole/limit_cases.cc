// SPDX-License-Identifier: Apache-2.0
// What the library takes from others, and what ends its work: limits, lost locks, switches, memory
// that is freed.
#include "sendrecv/whole/case.h"

#include <sys/statvfs.h>
#include <vector>

#include "testing.h"

namespace nccltune::sendrecv {
namespace {

// The receive never comes. Needs NCCLTUNE_SENDRECV_WAIT_LIMIT and NCCLTUNE_SENDRECV_EAGER=0.
TEST(Limit, ASendWithoutAReceive) {
  RunTwo(kWarm, [](const Member& own) {
    if (own.rank == 0) {
      own.Send();
      EXPECT_TRUE(LearnsOfAnError(own.comm));
      EXPECT_TRUE(own.Ends());
    }
    own.Meet();
    own.Abort();
  });
}

// A message ends in an error on both ranks. Each group has one message: behind one of NCCL, whose
// peer has failed, a launch that blocks would wait for ever.
TEST(Limit, LaunchesThatBlock) {
  RunTwo(0, [](const Member& own) {
    ncclResult_t result = kNcclSuccess;
    for (int round = 0; round < 40 && result == kNcclSuccess; ++round) {
      result = own.rank == 0
                   ? ncclSend(At(own.pair.from), kBytes, kNcclUint8, 1, own.comm, own.stream)
                   : ncclRecv(At(own.pair.to), kBytes, kNcclUint8, 0, own.comm, own.stream);
      ncclResult_t later = kNcclSuccess;
      EXPECT_TRUE(Soon([&] {
        EXPECT_EQ(ncclCommGetAsyncError(own.comm, &later), kNcclSuccess);
        return later != kNcclSuccess || cuStreamQuery(own.stream) != kNotReady;
      }));
      if (result == kNcclSuccess) result = later;
    }
    EXPECT_NE(result, kNcclSuccess);
    own.Meet();
    own.Abort();
    own.Wait();
  });
}

// More communicators than /dev/shm has room for. Others need it as well.
TEST(Limit, CommunicatorsInASmallSharedMemory) {
  constexpr int kComms = 12;
  Ranks two(2);
  two.Run([&](int rank) {
    struct statvfs before = {};
    ASSERT_EQ(statvfs("/dev/shm", &before), 0);
    two.Meet();
    Member own = {.ranks = two, .rank = rank, .comm = Init(two, 2, rank)};
    std::vector<ncclComm_t> comms;
    for (int i = 0; i < kComms; ++i) {
      comms.push_back(i == 0 ? own.comm : Init(two, 2, rank));
      own.comm = comms.back();
      ASSERT_NO_FATAL_FAILURE(own.Warm());
    }
    struct statvfs after = {};
    ASSERT_EQ(statvfs("/dev/shm", &after), 0);
    two.Meet();
    if (rank == 0) {
      std::printf("taken: %llu KiB\n",
                  static_cast<unsigned long long>(
                      (before.f_bavail - after.f_bavail) * after.f_frsize >> 10));
    }
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// The locks with which ranks show that they live end when a process closes any descriptor of the
// file. That must not look like its end.
TEST(Exchange, GoesOnAfterLocksAreLost) {
  RunTwo(kWarm, [](const Member& own) {
    const int file = FileOfSegment();
    ASSERT_GE(file, 0);
    if (own.rank == 1) {
      const std::string path = "/proc/self/fd/" + std::to_string(file);
      close(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    own.Meet();
    // Rank 0 waits until the place of rank 1 is locked again.
    const auto locked = [&] {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = 0;
      lock.l_len = 2;
      return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    };
    if (own.rank == 0) {
      EXPECT_TRUE(Soon(locked));
    }
    own.Meet();
    own.Warm();
    own.Destroy();
  });
}

// Prints the file with the counts of each process.
TEST(Exchange, AScrape) {
  RunTwo(kWarm, [](const Member& own) {
    const std::string mine = "nccltune-sendrecv-" + std::to_string(getpid()) + "-";
    std::string text;
    EXPECT_TRUE(Soon([&] {
      for (const auto& each :
           std::filesystem::directory_iterator(std::getenv("NCCLTUNE_SENDRECV_METRICS"))) {
        const std::string name = each.path().filename();
        if (!name.starts_with(mine) || !name.ends_with(".prom")) continue;
        std::ifstream file(each.path());
        text.assign(std::istreambuf_iterator<char>(file), {});
      }
      return !text.empty();
    }));
    std::printf("%s", text.c_str());
    own.Destroy();
  });
}

// Rank 0 has a file made and removed while messages go on.
TEST(Exchange, SwitchedOffAndOn) {
  const char* const file = std::getenv("NCCLTUNE_SENDRECV_OFF_FILE");
  ASSERT_NE(file, nullptr);
  RunTwo(kWarm, [file](const Member& own) {
    // The number of ranks whose message of the next round NCCL carries.
    const auto native = [&] {
      auto& flags = own.ranks.shared().flags;
      const uint64_t before = NativeSends();
      EXPECT_EQ(own.Exchange(1), kNcclSuccess);
      flags[own.rank].store(NativeSends() > before ? 1 : 0);
      own.Meet();
      const uint32_t ranks = flags[0].load() + flags[1].load();
      own.Meet();
      return ranks;
    };
    EXPECT_TRUE(Soon([&] { return native() == 0; }));
    if (own.rank == 0) std::ofstream(file).close();
    EXPECT_TRUE(Soon([&] { return native() == 2; }));
    own.Meet();
    if (own.rank == 0) std::remove(file);
    // A rank that is still off follows a peer that has decided first, but not in many rounds.
    EXPECT_TRUE(Soon([&] {
      for (int round = 0; round < 50; ++round) {
        if (native() != 0) return false;
      }
      return true;
    }));
    own.Destroy();
  });
}

// Peers map the memory. A program that frees it gets it back, also if it makes no more calls.
TEST(Memory, ThatIsFreedIsGivenBack) {
  RunTwo(kWarm, [](const Member& own) {
    const size_t before = CountFiles();
    const Member freed = own.With(NewPair(2 * kBytes));
    freed.Warm();
    EXPECT_GT(CountFiles(), before);
    own.Meet();
    Free(freed.pair);
    // The stand-in has a file for each import.
    EXPECT_TRUE(Soon([&] { return CountFiles() <= before; })) << CountFiles() << " " << before;
    own.Meet();
    own.Warm();
    own.Destroy();
  });
}

// As above, but a kernel of NCCL that was called without the library's knowledge of its end may
// run.
TEST(Memory, ThatIsFreedBesideACollective) {
  RunTwo(0, [](const Member& own) {
    CUstream beside = NewStream();
    const CUdeviceptr data = Fill(1000, 0);
    own.Warm();
    const size_t before = CountFiles();
    // Rank 0 waits for rank 1.
    const auto reduce = [&] {
      EXPECT_EQ(ncclAllReduce(At(data), At(data), 250, kNcclFloat32, kNcclSum, own.comm, beside),
                kNcclSuccess);
    };
    if (own.rank == 0) reduce();
    own.Meet();
    if (own.rank == 1) Free(own.pair);
    // Rank 1 withdraws it, then rank 0 may close its handle.
    AwaitCheck();
    own.Meet();
    AwaitCheck();
    EXPECT_EQ(CountFiles() < before, own.rank == 1)
        << "a handle was closed beside a kernel that waits";
    own.Meet();
    if (own.rank == 1) reduce();
    ASSERT_EQ(cuStreamSynchronize(beside), kCudaSuccess);
    own.Destroy();
  });
}

// As cudaDeviceReset does.
void ResetGpu() {
  CUdevice gpu = 0;
  ASSERT_EQ(cuCtxGetDevice(&gpu), kCudaSuccess);
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(gpu), kCudaSuccess);
}

// A program may reset its GPU and go on with new communicators.
TEST(Resets, NewCommunicatorsAfterOne) {
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    for (int turn = 0; turn < 3; ++turn) {
      ncclComm_t comm = Init(two, 2, rank);
      ASSERT_NE(comm, nullptr);
      const Member own = {.ranks = two, .rank = rank, .comm = comm, .pair = NewPair(2 * kBytes)};
      own.Warm(kWarm + 3);
      own.Destroy();
      Free(own.pair);
      two.Meet();
      ResetGpu();
    }
  });
}

// The communicator of a rank that has reset its GPU is still watched when its peer ends.
TEST(Resets, APeerEndsAfterOne) {
  RunTwo(kWarm, [](const Member& own) {
    // Messages of NCCL, the last ones without an event behind them.
    const Member small = own.With(NewPair(1024));
    for (int round = 0; round < 3; ++round) ASSERT_EQ(small.Exchange(round), kNcclSuccess);
    own.Meet();
    if (own.rank == 0) ResetGpu();
    own.Meet();
    if (own.rank == 1) own.Abort();
    own.Meet();
    if (own.rank == 0) AwaitCheck();
  });
}

// More messages at a time than a lane has slots.
constexpr size_t kEach = 8192;
constexpr size_t kBehind = 30;

// Returns the number in CROWD_<name>.
size_t NumberOf(const std::string& name) {
  const char* const text = std::getenv(("CROWD_" + name).c_str());
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

struct Crowd {
  Member own;
  bool both = false;  // both ranks send and receive

  bool sends() const { return both || own.rank == 0; }
  bool receives() const { return both || own.rank == 1; }

  // Makes calls in groups of `group` messages. 1: single calls, unless a rank both sends and
  // receives.
  void CallAll(size_t count, size_t group) const {
    const auto call = [this](size_t message) {
      const CUdeviceptr at = message * kEach;
      const Member each =
          own.With({.from = own.pair.from + at, .to = own.pair.to + at, .bytes = kEach});
      if (sends()) each.Send();
      if (receives()) each.Receive();
    };
    for (size_t begin = 0; begin < count; begin += group) {
      const auto calls = [&] {
        for (size_t i = begin; i < std::min(count, begin + group); ++i) call(i);
      };
      if (group > 1 || both) {
        Grouped(calls);
      } else {
        calls();
      }
    }
    ASSERT_TRUE(own.Ends()) << "rank " << own.rank;
  }
};

// CROWD_COUNT messages, in groups of CROWD_GROUP0 and CROWD_GROUP1 on the two ranks. CROWD_BOTH=1:
// in both directions. Some more messages come before and after.
TEST(Crowd, OfMessagesInGroups) {
  const size_t count = NumberOf("COUNT");
  RunTwo(0, [count](const Member& own) {
    Crowd crowd = {.own = own, .both = std::getenv("CROWD_BOTH") != nullptr};
    crowd.own.pair = {.from = Fill(count * kEach, own.rank),
                      .to = Fill(count * kEach, -1),
                      .bytes = count * kEach};
    for (int i = 0; i < kWarm + 2; ++i) {
      crowd.CallAll(1, 1);
      own.Meet();
    }
    crowd.own.Clear();
    own.Meet();
    crowd.CallAll(count, NumberOf("GROUP" + std::to_string(own.rank)));
    if (crowd.receives()) crowd.own.ExpectReceived(own.peer);
    own.Meet();
    // Messages one after another: copy engines carry them again.
    uint64_t native = 0;
    for (size_t i = 0; i < kBehind; ++i) {
      if (i == kBehind / 2) native = NativeSends();
      crowd.CallAll(1, 1);
      own.Meet();
    }
    if (crowd.sends()) {
      EXPECT_EQ(NativeSends() - native, 0U) << "the lane has recovered";
    }
    own.Destroy();
  });
}

// Groups that NCCL refuses, and groups in which a communicator ends. scenario_program.cc has those
// that are simulated and those of collectives.

void ExpectNoError(const Member& own) {
  ASSERT_TRUE(own.Ends());
  ncclResult_t error = kNcclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(own.comm, &error), kNcclSuccess);
  EXPECT_EQ(error, kNcclSuccess);
}

// NCCL carries nothing of an exchange of large messages.
void ExchangeByCopyEngine(const Member& own, int round) {
  const uint64_t before = NativeSends();
  ASSERT_EQ(own.Exchange(round), kNcclSuccess);
  EXPECT_EQ(NativeSends(), before);
  own.Meet();
}

// NCCL refuses this: a communicator must grow.
void GrowByNone(const Member& own) {
  ncclComm_t made = nullptr;
  EXPECT_EQ(ncclCommGrow(own.comm, 2, nullptr, -1, &made, nullptr), kNcclInvalidArgument);
}

// NCCL refuses the group, so none of it runs on either side. Later groups work.
TEST(Grouped, WhatIsRefusedRunsNowhere) {
  RunTwo(kWarm, [](const Member& own) {
    for (int round = 0; round < 4; ++round) {
      own.Clear();
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      if (round % 2 == 0) {
        EXPECT_EQ(ncclSend(At(own.pair.from), 8, kNcclUint8, 2, own.comm, own.stream),
                  kNcclInvalidArgument);
      }
      own.Send();
      own.Receive();
      if (round % 2 == 1) GrowByNone(own);
      EXPECT_EQ(ncclGroupEnd(), kNcclInvalidArgument);
      ExpectNoError(own);
      EXPECT_EQ(Fetch(own.pair.to, kBytes), std::vector<uint8_t>(kBytes, 0xEE));
      own.Meet();
      ExchangeByCopyEngine(own, round);
    }
    own.Destroy();
  });
}

// NCCL refuses every call on a revoked communicator at the call.
TEST(Grouped, ARevokedCommunicatorIsNccls) {
  RunTwo(kWarm, [](const Member& own) {
    EXPECT_EQ(ncclCommRevoke(own.comm, 1), kNcclInvalidArgument);
    ASSERT_EQ(own.Exchange(9), kNcclSuccess);
    own.Meet();
    ASSERT_EQ(ncclCommRevoke(own.comm, 0), kNcclSuccess);
    EXPECT_EQ(ncclSend(At(own.pair.from), kBytes, kNcclUint8, own.peer, own.comm, own.stream),
              kNcclInvalidUsage);
    ExpectNoError(own);
    own.Meet();
    own.Destroy();
  });
}

// A program must not do this. It is an error, but the other communicators still work.
TEST(Grouped, ACommunicatorThatEndsThere) {
  RunTwo(0, [](Member& own) {
    for (const bool aborts : {true, false}) {
      for (const bool held : {true, false}) {
        own.Warm();
        Member sent = own;
        if (!held) sent.pair.bytes = 8;
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        sent.Send();
        sent.Receive();
        if (aborts) {
          own.Abort();
        } else {
          own.Destroy();
        }
        const ncclResult_t ended = ncclGroupEnd();
        if (held) {
          EXPECT_EQ(ended, kNcclRemoteError);
        }
        own.Meet();
        own.comm = Init(own.ranks, 2, own.rank);
        own.stream = NewStream();
        ASSERT_EQ(own.Exchange(3), kNcclSuccess);
        own.Meet();
      }
    }
    own.Destroy();
  });
}

// NCCL refuses a repeated group. Its messages never run, so they must not be counted. Both ranks
// must still number the next large message alike. Later groups are not affected.
TEST(Small, AGroupThatIsRefusedIsNotCounted) {
  RunTwo(kWarm, [](const Member& own) {
    const Member small = own.With(NewPair(4000));
    for (int round = 0; round < 3; ++round) ASSERT_EQ(small.Exchange(round), kNcclSuccess);
    if (own.rank == 0) {
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      small.Send();
      small.Receive();
      GrowByNone(own);
      EXPECT_EQ(ncclGroupEnd(), kNcclInvalidArgument);
    }
    softNcclTrace();
    ExchangeByCopyEngine(own, 9);
    const std::string trace = softNcclTrace();
    EXPECT_EQ(trace.find("GroupEnd"), trace.rfind("GroupEnd")) << trace;
    own.Destroy();
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
