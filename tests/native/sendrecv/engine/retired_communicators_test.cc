// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/communicator_lifetimes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

TEST(RetiredCommunicators, AreReleasedWhenPeersHaveReceived) {
  const std::string key = "retired " + std::to_string(getpid());
  std::shared_ptr<Communicator> ranks[2];
  for (const int rank : {0, 1}) {
    soft::UseGpu(rank);
    std::string why;
    ranks[rank] = Communicator::Join(key, rank, {}, &why);
    ASSERT_NE(ranks[rank], nullptr) << why;
  }
  for (const int rank : {0, 1}) ranks[rank]->Begin(rank);
  Port* const sends = ranks[0]->FindPort(1, Role::kSender, true);
  Port* const receives = ranks[1]->FindPort(0, Role::kReceiver, true);
  ASSERT_TRUE(sends != nullptr && receives != nullptr);
  const uint64_t number = sends->end->Post(8, 1, 0, MessageDecision::kFetch).number;

  RetiredCommunicators retired;
  retired.Add(ranks[0]);
  retired.Release(std::chrono::milliseconds(0));
  EXPECT_TRUE(ranks[0]->HasUnreceivedSends())
      << "it is not released before, also if nobody waits for it";

  std::atomic<bool> received = false;
  std::thread receiver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    receives->end->Post(8, 1, 0, MessageDecision::kNative);
    received.store(true);
    receives->end->SlotOf(number).done.store(FlagValue(number));
  });
  // The peer takes longer than the patience, but it is alive.
  retired.Release(std::chrono::milliseconds(1));
  EXPECT_TRUE(received.load());
  receiver.join();
  EXPECT_TRUE(ranks[1]->Close());
}

}  // namespace
}  // namespace nccltune::sendrecv
