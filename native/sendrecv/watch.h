// SPDX-License-Identifier: Apache-2.0
//
// A thread that looks now and then whether peers still live, as long as there are communicators. It
// calls neither CUDA nor, of NCCL, anything that may be called by others meanwhile.
#ifndef NCCLTUNE_SENDRECV_WATCH_H_
#define NCCLTUNE_SENDRECV_WATCH_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "sendrecv/communicator.h"

namespace nccltune::sendrecv {

class Watcher {
 public:
  // Never destroyed.
  static Watcher& Get();

  // What else is looked at. Before the first Add.
  void Also(std::function<void()> look) { also_ = std::move(look); }

  void Add(std::shared_ptr<Communicator> communicator);
  // While another one is watched. Also from the thread itself.
  void AddBeside(std::shared_ptr<Communicator> communicator);
  // The thread ends with the last one.
  void Remove(const std::shared_ptr<Communicator>& communicator);

  // All of the process.
  std::vector<std::shared_ptr<Communicator>> All();

 private:
  void Run();

  std::function<void()> also_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Communicator>> watched_;
  std::mutex thread_mutex_;
  std::thread thread_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_WATCH_H_
