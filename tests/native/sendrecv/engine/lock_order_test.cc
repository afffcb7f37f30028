// SPDX-License-Identifier: Apache-2.0
//
// Two threads may have groups of the same communicators, in opposite orders.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "sendrecv/calls.h"
#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

// Returns whether a thread of this process sleeps, for example because it waits for a mutex.
bool Sleeps(int thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  return stat.find(") S ") != std::string::npos;
}

TEST(LockOrder, IsTheSameForAllGroups) {
  soft::UseGpu(0);
  std::shared_ptr<Communicator> comms[2];
  for (auto& each : comms) {
    std::string why;
    const std::string key =
        "order " + std::to_string(getpid()) + " " + std::to_string(&each - comms);
    each = Communicator::Join(key, 0, {}, &why);
    ASSERT_NE(each, nullptr) << why;
    each->Begin(0);
  }
  if (std::less<>()(comms[1].get(), comms[0].get())) std::swap(comms[0], comms[1]);
  Native native;
  native.Send = [](const void*, size_t, nccl::DataType, int, nccl::Comm, nccl::Stream) {
    return nccl::Result{abi::kSuccess};
  };
  GroupCalls calls;
  for (const int which : {1, 0}) {
    HeldCall held;
    held.message = {.buffer = &native, .count = 1, .peer = 1, .communicator = comms[which]};
    calls.held.push_back(std::move(held));
  }
  calls.end = [] { return nccl::Result{abi::kSuccess}; };
  std::atomic<int> id = 0;
  std::unique_lock first(comms[0]->mutex());
  std::thread other([&] {
    soft::UseGpu(0);
    id = gettid();
    RunCalls(std::move(calls), native, abi::kSuccess, [](const GroupCalls&) {});
  });
  EXPECT_TRUE(soft::Soon([&] { return id != 0 && Sleeps(id); }));
  {
    const std::unique_lock second(comms[1]->mutex(), std::try_to_lock);
    EXPECT_TRUE(second.owns_lock()) << "the other thread has locked the second one first";
  }
  first.unlock();
  other.join();
  // The watcher may hold a lock at this moment.
  for (const auto& each : comms) EXPECT_TRUE(soft::Soon([&] { return each->Close(); }));
}

}  // namespace
}  // namespace nccltune::sendrecv
