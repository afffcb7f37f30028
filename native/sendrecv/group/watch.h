// SPDX-License-Identifier: Apache-2.0
// A thread that checks every 200 ms whether peers are alive, as long as the process has
// communicators. The thread calls CUDA only to record an event when a peer is lost. The thread
// calls NCCL only for new communicators that no other thread knows yet.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "sendrecv/group/communicator.h"

namespace nccltune::sendrecv {

class Watcher {
 public:
  // Returns the watcher of the process, which is never destroyed.
  static Watcher& Get();

  // Sets a function that the thread calls with each check. Call SetExtraCheck before the first Add.
  void SetExtraCheck(std::function<void()> check) { extra_check_ = std::move(check); }

  void Add(std::shared_ptr<Communicator> communicator);
  // Like Add, but does not start the thread. The thread itself may call this function.
  void AddWithoutStart(std::shared_ptr<Communicator> communicator);
  // Removes a communicator. Stops the thread after the last communicator is removed.
  void Remove(const std::shared_ptr<Communicator>& communicator);

  // Returns all communicators of the process.
  std::vector<std::shared_ptr<Communicator>> All();

 private:
  void Start();
  void Run();
  void CheckAll();
  using Communicators = std::vector<std::shared_ptr<Communicator>>;
  static void GiveBackMemory(const Communicators& watched);

  std::function<void()> extra_check_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Communicator>> watched_;
  std::mutex thread_mutex_;
  std::thread thread_;
};

}  // namespace nccltune::sendrecv
