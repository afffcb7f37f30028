// SPDX-License-Identifier: Apache-2.0
//
// What the library takes from others, and what ends its work: limits, lost locks, switches, memory
// that is freed.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

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
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
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
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
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
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
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
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
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
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream));
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

}  // namespace
}  // namespace nccltune::sendrecv
