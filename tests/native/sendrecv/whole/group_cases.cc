// SPDX-License-Identifier: Apache-2.0
//
// Groups that do not end with ncclGroupEnd, and groups in which NCCL has other work.
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

void AwaitAll(CUstream stream, ncclComm_t comm) {
  ASSERT_TRUE(Soon([&] { return cuStreamQuery(stream) != kNotReady; }));
  ncclResult_t error = kNcclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &error), kNcclSuccess);
  EXPECT_EQ(error, kNcclSuccess);
}

// One rank simulates groups of small and large messages that the other rank does not call. Those
// messages must have no effect on later ones, in groups and alone.
TEST(Simulated, GroupsAreNothingToPeers) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair large = NewPair(kBytes);
    const Pair small = NewPair(4000);
    Warm(two, large, rank, comm, stream);
    for (int round = 0; round < 6; ++round) {
      const bool simulates = rank == round % 2;
      if (simulates) {
        ncclSimInfo_t info;
        // NCCL refuses the uninitialised struct, but the group ends.
        if (round > 3) info.magic = 1;
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        ASSERT_EQ(Send(small.from, small.bytes, 1 - rank, comm, stream), kNcclSuccess);
        ASSERT_EQ(Send(large.from, kBytes, 1 - rank, comm, stream), kNcclSuccess);
        ASSERT_EQ(ncclGroupSimulateEnd(&info), kNcclSuccess);
        ASSERT_EQ(Receive(large.to, kBytes, 1 - rank, comm, stream), kNcclSuccess);
        ASSERT_EQ(ncclGroupSimulateEnd(&info), round > 3 ? kNcclInvalidArgument : kNcclSuccess);
      }
      ASSERT_EQ(Exchange(small, round, rank, 1 - rank, comm, stream), kNcclSuccess);
      const uint64_t before = NativeSends();
      ASSERT_EQ(Exchange(large, round, rank, 1 - rank, comm, stream), kNcclSuccess);
      EXPECT_EQ(NativeSends(), before);
      two.Meet();
    }
    // Outside of a group, to show that none of the simulated messages ran.
    if (rank == 0) {
      ASSERT_EQ(cuMemcpyHtoD_v2(small.from, Pattern(4000, 5).data(), 4000), kCudaSuccess);
      ASSERT_EQ(Send(small.from, 4000, 1, comm, stream), kNcclSuccess);
    } else {
      ASSERT_EQ(Receive(small.to, 4000, 0, comm, stream), kNcclSuccess);
    }
    AwaitAll(stream, comm);
    if (rank == 1) {
      EXPECT_EQ(Fetch(small.to, 4000), Pattern(4000, 5));
    }
    two.Meet();
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// NCCL puts these collectives and messages into one queue for each peer. One rank calls them in one
// group, the other one separately.
TEST(Grouped, CollectivesOfMessagesStayInOrder) {
  constexpr size_t kPart = 1000;
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair large = NewPair(kBytes);
    const Pair parts = NewPair(2 * kPart);
    Warm(two, large, rank, comm, stream);
    for (int round = 0; round < 12; ++round) {
      const int sender = round / 3 % 2;
      const bool receives = rank != sender;
      ASSERT_EQ(cuMemcpyHtoD_v2(large.from, Pattern(kBytes, round).data(), kBytes), kCudaSuccess);
      ASSERT_EQ(cuMemcpyHtoD_v2(parts.from, Pattern(2 * kPart, 50 + rank).data(), 2 * kPart),
                kCudaSuccess);
      ASSERT_EQ(cuMemsetD8_v2(large.to, 0xEE, kBytes), kCudaSuccess);
      ASSERT_EQ(cuMemsetD8_v2(parts.to, 0xEE, 2 * kPart), kCudaSuccess);
      two.Meet();
      const bool grouped = rank == round / 6;
      ASSERT_EQ(grouped ? ncclGroupStart() : kNcclSuccess, kNcclSuccess);
      ASSERT_EQ(receives ? Receive(large.to, kBytes, sender, comm, stream)
                         : Send(large.from, kBytes, 1 - rank, comm, stream),
                kNcclSuccess);
      const void* const from = At(parts.from);
      void* const to = At(parts.to);
      if (round % 3 == 0) {
        ASSERT_EQ(ncclAlltoAll(from, to, kPart, kNcclUint8, comm, stream), kNcclSuccess);
      } else if (round % 3 == 1) {
        ASSERT_EQ(ncclGather(from, to, kPart, kNcclUint8, 1 - sender, comm, stream), kNcclSuccess);
      } else {
        ASSERT_EQ(ncclScatter(from, to, kPart, kNcclUint8, sender, comm, stream), kNcclSuccess);
      }
      ASSERT_EQ(grouped ? ncclGroupEnd() : kNcclSuccess, kNcclSuccess);
      AwaitAll(stream, comm);
      if (receives) {
        EXPECT_EQ(Fetch(large.to, kBytes), Pattern(kBytes, round)) << round;
        // What this rank receives: the first part of a gather, or this rank's part of a scatter.
        const std::vector<uint8_t> theirs = Pattern(2 * kPart, 50 + sender);
        const size_t place = round % 3 == 2 ? 0 : static_cast<size_t>(sender) * kPart;
        const size_t which = round % 3 == 1 ? 0 : static_cast<size_t>(rank) * kPart;
        const auto begin = theirs.begin() + static_cast<ptrdiff_t>(which);
        EXPECT_EQ(Fetch(parts.to + place, kPart), std::vector<uint8_t>(begin, begin + kPart))
            << round;
      }
      two.Meet();
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// NCCL refuses the group, so none of it runs on either side. Later groups work.
TEST(Grouped, WhatIsRefusedRunsNowhere) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair large = NewPair(kBytes);
    Warm(two, large, rank, comm, stream);
    for (int round = 0; round < 4; ++round) {
      ASSERT_EQ(cuMemsetD8_v2(large.to, 0xEE, kBytes), kCudaSuccess);
      ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
      if (round % 2 == 0) {
        EXPECT_EQ(Send(large.from, 8, 2, comm, stream), kNcclInvalidArgument);
      }
      ASSERT_EQ(Send(large.from, kBytes, 1 - rank, comm, stream), kNcclSuccess);
      ASSERT_EQ(Receive(large.to, kBytes, 1 - rank, comm, stream), kNcclSuccess);
      if (round % 2 == 1) {
        ncclComm_t made = nullptr;
        EXPECT_EQ(ncclCommGrow(comm, 2, nullptr, -1, &made, nullptr), kNcclInvalidArgument);
      }
      EXPECT_EQ(ncclGroupEnd(), kNcclInvalidArgument);
      AwaitAll(stream, comm);
      EXPECT_EQ(Fetch(large.to, kBytes), std::vector<uint8_t>(kBytes, 0xEE));
      two.Meet();
      const uint64_t before = NativeSends();
      ASSERT_EQ(Exchange(large, round, rank, 1 - rank, comm, stream), kNcclSuccess);
      EXPECT_EQ(NativeSends(), before);
      two.Meet();
    }
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// NCCL refuses every call on a revoked communicator at the call.
TEST(Grouped, ARevokedCommunicatorIsNccls) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair large = NewPair(kBytes);
    Warm(two, large, rank, comm, stream);
    EXPECT_EQ(ncclCommRevoke(comm, 1), kNcclInvalidArgument);
    ASSERT_EQ(Exchange(large, 9, rank, 1 - rank, comm, stream), kNcclSuccess);
    two.Meet();
    ASSERT_EQ(ncclCommRevoke(comm, 0), kNcclSuccess);
    EXPECT_EQ(Send(large.from, kBytes, 1 - rank, comm, stream), kNcclInvalidUsage);
    ncclResult_t error = kNcclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &error), kNcclSuccess);
    EXPECT_EQ(error, kNcclSuccess);
    two.Meet();
    EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
  });
}

// A program must not do this. It is an error, but the other communicators still work.
TEST(Grouped, ACommunicatorThatEndsThere) {
  Ranks two(2);
  two.Run([&](int rank) {
    for (const bool aborts : {true, false}) {
      for (const bool held : {true, false}) {
        ncclComm_t comm = Init(two, 2, rank);
        CUstream stream = NewStream();
        const Pair pair = NewPair(kBytes);
        Warm(two, pair, rank, comm, stream);
        ASSERT_EQ(ncclGroupStart(), kNcclSuccess);
        ASSERT_EQ(Send(pair.from, held ? kBytes : 8, 1 - rank, comm, stream), kNcclSuccess);
        ASSERT_EQ(Receive(pair.to, held ? kBytes : 8, 1 - rank, comm, stream), kNcclSuccess);
        EXPECT_EQ(aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm), kNcclSuccess);
        const ncclResult_t ended = ncclGroupEnd();
        if (held) {
          EXPECT_EQ(ended, kNcclRemoteError);
        }
        two.Meet();
        comm = Init(two, 2, rank);
        ASSERT_EQ(Exchange(pair, 3, rank, 1 - rank, comm, stream), kNcclSuccess);
        two.Meet();
        EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
      }
    }
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
