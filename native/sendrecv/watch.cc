// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include "sendrecv/say_counts.h"

namespace nccltune::sendrecv {
namespace {

constexpr auto kEvery = std::chrono::milliseconds(200);

}  // namespace

Watcher& Watcher::Get() {
  static Watcher& watcher = *new Watcher;
  return watcher;
}

void Watcher::Add(std::shared_ptr<Communicator> communicator) {
  const std::scoped_lock both(thread_mutex_);
  AddBeside(std::move(communicator));
  if (thread_.joinable()) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The application's signals are for its own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watcher::AddBeside(std::shared_ptr<Communicator> communicator) {
  const std::scoped_lock lock(mutex_);
  watched_.push_back(std::move(communicator));
}

void Watcher::Remove(const std::shared_ptr<Communicator>& communicator) {
  const std::scoped_lock both(thread_mutex_);
  bool last = false;
  {
    const std::scoped_lock lock(mutex_);
    std::erase(watched_, communicator);
    last = watched_.empty();
  }
  if (!last || !thread_.joinable()) return;
  changed_.notify_all();
  thread_.join();
}

std::vector<std::shared_ptr<Communicator>> Watcher::All() {
  const std::scoped_lock lock(mutex_);
  return watched_;
}

void Watcher::Run() {
  std::unique_lock lock(mutex_);
  while (!watched_.empty()) {
    const auto watched = watched_;
    lock.unlock();
    // First, as nothing is open any more once a peer is found to be gone.
    if (CountsAreAsked()) {
      std::string open;
      for (const auto& each : watched) open += each->OpenWords();
      SayCounts(open);
    }
    for (const auto& each : watched) each->Watch();
    if (also_) also_();
    lock.lock();
    changed_.wait_for(lock, kEvery, [&] { return watched_.empty(); });
  }
}

}  // namespace nccltune::sendrecv
