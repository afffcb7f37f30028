// SPDX-License-Identifier: Apache-2.0
//
// What the library takes from others, and what ends its work: limits, lost locks, switches, memory
// that is freed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

// The receive never comes. Needs NCCLTUNE_SENDRECV_WAIT_LIMIT and NCCLTUNE_SENDRECV_EAGER=0.
TEST(Limit, ASendWithoutAReceive) {
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    if (rank == 0) {
      ASSERT_EQ(Send(pair.from, kBytes, 1, comm, stream), kNcclSuccess);
      EXPECT_TRUE(LearnsOfAnError(comm));
      EXPECT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
    }
    two.Meet();
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
  });
}

// A message ends in an error on both ranks. Each group has one message: behind one of NCCL, whose
// peer has failed, a launch that blocks would wait for ever.
TEST(Limit, LaunchesThatBlock) {
  RunTwo(0, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    ncclResult_t result = kNcclSuccess;
    for (int round = 0; round < 40 && result == kNcclSuccess; ++round) {
      result = rank == 0 ? Send(pair.from, kBytes, 1, comm, stream)
                         : Receive(pair.to, kBytes, 0, comm, stream);
      ncclResult_t later = kNcclSuccess;
      EXPECT_TRUE(Soon([&] {
        EXPECT_EQ(ncclCommGetAsyncError(comm, &later), kNcclSuccess);
        return later != kNcclSuccess || cuStreamQuery(stream) != kNotReady;
      }));
      if (result == kNcclSuccess) result = later;
    }
    EXPECT_NE(result, kNcclSuccess);
    two.Meet();
    EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess);
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
    UseGpu(rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    std::vector<ncclComm_t> comms;
    for (int i = 0; i < kComms; ++i) {
      comms.push_back(Init(two, 2, rank));
      ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comms.back(), stream));
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
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    const int file = FileOfSegment();
    ASSERT_GE(file, 0);
    if (rank == 1) {
      const std::string path = "/proc/self/fd/" + std::to_string(file);
      close(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    two.Meet();
    // Rank 0 waits until the place of rank 1 is locked again.
    const auto locked = [&] {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = 0;
      lock.l_len = 2;
      return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    };
    if (rank == 0) {
      EXPECT_TRUE(Soon(locked));
    }
    two.Meet();
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// Prints the file with the counts of each process.
TEST(Exchange, AScrape) {
  RunTwo(kWarm, [&](Ranks& /*two*/, int /*rank*/, ncclComm_t comm, CUstream /*stream*/,
                    const Pair& /*pair*/) {
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
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// Rank 0 has a file made and removed while messages go on.
TEST(Exchange, SwitchedOffAndOn) {
  const char* const file = std::getenv("NCCLTUNE_SENDRECV_OFF_FILE");
  ASSERT_NE(file, nullptr);
  RunTwo(kWarm, [&](Ranks& two, int rank, ncclComm_t comm, CUstream stream, const Pair& pair) {
    // The number of ranks whose message of the next round NCCL carries.
    const auto native = [&] {
      const uint64_t before = NativeSends();
      EXPECT_EQ(Exchange(pair, 1, rank, 1 - rank, comm, stream), kNcclSuccess);
      two.shared().flags[rank].store(NativeSends() > before ? 1 : 0);
      two.Meet();
      const uint32_t ranks = two.shared().flags[0].load() + two.shared().flags[1].load();
      two.Meet();
      return ranks;
    };
    EXPECT_TRUE(Soon([&] { return native() == 0; }));
    if (rank == 0) std::ofstream(file).close();
    EXPECT_TRUE(Soon([&] { return native() == 2; }));
    two.Meet();
    if (rank == 0) std::remove(file);
    // A rank that is still off follows a peer that has decided first, but not in many rounds.
    EXPECT_TRUE(Soon([&] {
      for (int round = 0; round < 50; ++round) {
        if (native() != 0) return false;
      }
      return true;
    }));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// Peers map the memory. A program that frees it gets it back, also if it makes no more calls.
TEST(Memory, ThatIsFreedIsGivenBack) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair kept = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, kept, rank, comm, stream));
    const size_t before = CountFiles();
    const Pair freed = NewPair(2 * kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, freed, rank, comm, stream));
    EXPECT_GT(CountFiles(), before);
    two.Meet();
    Free(freed);
    // The stand-in has a file for each import.
    EXPECT_TRUE(Soon([&] { return CountFiles() <= before; })) << CountFiles() << " " << before;
    two.Meet();
    ASSERT_NO_FATAL_FAILURE(Warm(two, kept, rank, comm, stream));
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// As above, but a kernel of NCCL that was called without the library's knowledge of its end may
// run.
TEST(Memory, ThatIsFreedBesideACollective) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    CUstream beside = NewStream();
    const Pair pair = NewPair(kBytes);
    const CUdeviceptr data = Fill(1000, 0);
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
    const size_t before = CountFiles();
    // Rank 0 waits for rank 1.
    const auto reduce = [&] {
      return ncclAllReduce(At(data), At(data), 250, kNcclFloat32, kNcclSum, comm, beside);
    };
    if (rank == 0) {
      ASSERT_EQ(reduce(), kNcclSuccess);
    }
    two.Meet();
    if (rank == 1) Free(pair);
    // Rank 1 withdraws it, then rank 0 may close its handle.
    AwaitCheck();
    two.Meet();
    AwaitCheck();
    EXPECT_EQ(CountFiles() < before, rank == 1) << "a handle was closed beside a kernel that waits";
    two.Meet();
    if (rank == 1) {
      ASSERT_EQ(reduce(), kNcclSuccess);
    }
    ASSERT_EQ(cuStreamSynchronize(beside), kCudaSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

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
      CUstream stream = NewStream();
      const Pair pair = NewPair(2 * kBytes);
      Warm(two, pair, rank, comm, stream, kWarm + 3);
      EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
      Free(pair);
      two.Meet();
      ResetGpu();
    }
  });
}

// The communicator of a rank that has reset its GPU is still watched when its peer ends.
TEST(Resets, APeerEndsAfterOne) {
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    ncclComm_t comm = Init(two, 2, rank);
    ASSERT_NE(comm, nullptr);
    CUstream stream = NewStream();
    const Pair large = NewPair(2 * kBytes);
    Warm(two, large, rank, comm, stream);
    // Messages of NCCL, the last ones without an event behind them.
    const Pair small = NewPair(1024);
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(Exchange(small, round, rank, 1 - rank, comm, stream), kNcclSuccess);
    }
    two.Meet();
    if (rank == 0) ResetGpu();
    two.Meet();
    if (rank == 1) {
      EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess);
    }
    two.Meet();
    if (rank == 0) AwaitCheck();
  });
}

constexpr size_t kEach = 8192;
constexpr size_t kBehind = 30;

// Returns the number in CROWD_<name>.
size_t NumberOf(const std::string& name) {
  const char* const text = std::getenv(("CROWD_" + name).c_str());
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

struct Crowd {
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
  int rank = 0;
  bool both = false;  // both ranks send and receive
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;

  bool sends() const { return both || rank == 0; }
  bool receives() const { return both || rank == 1; }

  void Call(size_t message) const {
    const CUdeviceptr offset = message * kEach;
    if (sends()) {
      ASSERT_EQ(Send(from + offset, kEach, 1 - rank, comm, stream), kNcclSuccess) << message;
    }
    if (receives()) {
      ASSERT_EQ(Receive(to + offset, kEach, 1 - rank, comm, stream), kNcclSuccess) << message;
    }
  }

  // Makes calls in groups of `group` messages. 1: single calls, unless a rank both sends and
  // receives.
  void CallAll(size_t count, size_t group) const {
    for (size_t begin = 0; begin < count; begin += group) {
      const bool grouped = group > 1 || both;
      if (grouped) {
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      }
      for (size_t i = begin; i < std::min(count, begin + group); ++i) Call(i);
      if (grouped) {
        ASSERT_EQ(ncclGroupEnd(), kNcclSuccess) << begin;
      }
    }
  }

  void Wait() const {
    ASSERT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; })) << "rank " << rank;
  }
};

// CROWD_COUNT messages, in groups of CROWD_GROUP0 and CROWD_GROUP1 on the two ranks. CROWD_BOTH=1:
// in both directions. Some more messages come before and after.
TEST(Crowd, OfMessagesInGroups) {
  const size_t count = NumberOf("COUNT");
  Ranks two(2);
  two.Run([&](int rank) {
    Crowd crowd = {.comm = Init(two, 2, rank), .stream = NewStream(), .rank = rank};
    crowd.both = std::getenv("CROWD_BOTH") != nullptr;
    crowd.from = Fill(count * kEach, rank);
    crowd.to = Fill(count * kEach, -1);
    for (int i = 0; i < kWarm + 2; ++i) {
      crowd.CallAll(1, 1);
      crowd.Wait();
      two.Meet();
    }
    EXPECT_EQ(cuMemsetD8_v2(crowd.to, 0xEE, count * kEach), kCudaSuccess);
    two.Meet();
    crowd.CallAll(count, NumberOf("GROUP" + std::to_string(rank)));
    crowd.Wait();
    if (crowd.receives()) {
      EXPECT_EQ(Fetch(crowd.to, count * kEach), Pattern(count * kEach, 1 - rank));
    }
    two.Meet();
    // Messages one after another: copy engines carry them again.
    uint64_t native = 0;
    for (size_t i = 0; i < kBehind; ++i) {
      if (i == kBehind / 2) native = NativeSends();
      crowd.CallAll(1, 1);
      crowd.Wait();
      two.Meet();
    }
    if (crowd.sends()) {
      EXPECT_EQ(NativeSends() - native, 0U) << "the lane has recovered";
    }
    EXPECT_EQ(ncclCommDestroy(crowd.comm), kNcclSuccess);
  });
}

}  // namespace

// Programs that reset their GPU, as cudaDeviceReset does.

// More messages at a time than a lane has slots.

}  // namespace nccltune::sendrecv
