// SPDX-License-Identifier: Apache-2.0
// Groups that NCCL refuses, and groups in which a communicator ends. scenario_program.cc has those
// that are simulated and those of collectives.
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

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
