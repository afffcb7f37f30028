// SPDX-License-Identifier: Apache-2.0
//
// More messages at a time than a lane has slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

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
}  // namespace nccltune::sendrecv
