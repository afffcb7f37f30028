// SPDX-License-Identifier: Apache-2.0
//
// The thread that runs the backend, so that the connection to the conductor never waits for it.
#ifndef NCCLTUNE_BENCH_WORKER_H_
#define NCCLTUNE_BENCH_WORKER_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/backend.h"
#include "bench/descriptor.h"
#include "bench/exchange.h"
#include "bench/wire.h"
#include "bench/world.h"

namespace nccltune::bench {

class Worker : private Exchange {
 public:
  Worker(const World& world, std::unique_ptr<Backend> backend);
  // Waits for the backend to return.
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // kOpen, kStep, kTable, kQuit: what the backend is to do next; kGathered: what an exchange
  // brought. False for a message that says nothing of the kind.
  bool Give(Message message);

  // Readable while TakeAnswers has something to give, or the thread has ended.
  int descriptor() const { return event_.get(); }
  std::vector<Message> TakeAnswers();

  // Makes the backend return: exchanges fail, a blocked collective is aborted, nothing new is
  // begun.
  void Abort();

  // The thread has ended: after kQuit, or after Abort once the backend has returned.
  bool finished();

 private:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override;
  void Loop();
  // False: no more.
  bool Do(const Message& message);
  void Answer(MessageType type, std::string payload);
  void Ring();

  const World world_;
  const std::unique_ptr<Backend> backend_;
  const Descriptor event_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> tasks_;
  std::vector<Message> answers_;
  std::deque<std::vector<std::string>> gathered_;
  bool aborted_ = false;
  bool finished_ = false;

  std::thread aborter_;
  std::thread thread_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_WORKER_H_
