// SPDX-License-Identifier: Apache-2.0
//
// The thread that runs the backend. Another thread serves the connection to the conductor, so the
// connection never waits for the backend.
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
#include "bench/wire.h"
#include "common/descriptor.h"

namespace nccltune::bench {

class BackendThread : private ProcessExchange {
 public:
  BackendThread(const World& world, std::unique_ptr<Backend> backend);
  // Aborts the backend if it still runs, and waits for it to return.
  ~BackendThread() override;
  BackendThread(const BackendThread&) = delete;
  BackendThread& operator=(const BackendThread&) = delete;

  // Passes a message to the thread. kOpen, kStep, kTable and kQuit are tasks for the backend;
  // kGathered is the result of an exchange. Returns false for any other or malformed message.
  bool Deliver(Message message);

  // Becomes readable when TakeAnswers has messages, or when the thread has ended.
  int descriptor() const { return event_.fd(); }
  std::vector<Message> TakeAnswers();

  // Makes the backend return: exchanges fail, a blocked collective is aborted and no new task
  // starts.
  void Abort();

  // Returns whether the thread has ended. The thread ends after kQuit or after Abort, when the
  // backend has returned.
  bool finished();

 private:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override;
  void Loop();
  // Runs one task. Returns false if no task may follow: after kQuit, or if a step cannot be parsed.
  bool RunTask(const Message& message);
  void Answer(MessageType type, std::string payload);
  void SignalEvent();

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
