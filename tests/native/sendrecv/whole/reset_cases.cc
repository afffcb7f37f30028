// SPDX-License-Identifier: Apache-2.0
//
// Programs that reset their GPU, as cudaDeviceReset does.
#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

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

}  // namespace
}  // namespace nccltune::sendrecv
