// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/enqueued_work.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

// At a regular end the last messages of a peer may complete a moment after it has left.
TEST(EnqueuedWork, NcclsMessagesAreLostOnlySomeTimeAfterTheirPeer) {
  soft::UseGpu(0);
  std::string why;
  const auto driver = CudaDriver::OfCurrent(*OpenCuda(&why), &why);
  ASSERT_NE(driver, nullptr) << why;
  EnqueuedWork work(*driver);
  constexpr std::array kPeers = {3};
  work.TrackPeer(3);
  work.BeginNative(kPeers);
  work.PeerLost(3);
  const auto now = EnqueuedWork::Clock::now();
  EXPECT_FALSE(work.MayWaitFor(3, now));
  EXPECT_TRUE(work.MayWaitFor(3, now - std::chrono::seconds(2)));
  EXPECT_FALSE(work.MayWaitFor(4, now - std::chrono::seconds(2))) << "it has no messages";
  work.Clear();
}

}  // namespace
}  // namespace nccltune::sendrecv
