// SPDX-License-Identifier: Apache-2.0
//
// A thread that looks now and then whether peers still live, as long as there are communicators. It
// calls neither CUDA nor NCCL.
#ifndef NCCLTUNE_SENDRECV_WATCH_H_
#define NCCLTUNE_SENDRECV_WATCH_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sendrecv/communicator.h"

namespace nccltune::sendrecv {

class Watcher {
 public:
  // Never destroyed.
  static Watcher& Get();

  void Add(std::shared_ptr<Communicator> communicator);
  // The thread ends with the last one.
  void Remove(const std::shared_ptr<Communicator>& communicator);

  // All of the process.
  std::vector<std::shared_ptr<Communicator>> All();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Communicator>> watched_;
  std::mutex thread_mutex_;
  std::thread thread_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_WATCH_H_
