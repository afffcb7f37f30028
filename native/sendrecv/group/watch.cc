// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/group/watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <system_error>

#include "sendrecv/collective_work.h"
#include "sendrecv/live_control.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(200);

}  // namespace

Watcher& Watcher::Get() {
  static Watcher& watcher = *new Watcher;
  return watcher;
}

void Watcher::Add(std::shared_ptr<Communicator> communicator) {
  const std::scoped_lock both(thread_mutex_);
  AddWithoutStart(std::move(communicator));
  if (!thread_.joinable()) Start();
}

void Watcher::Start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The thread blocks all signals, so that the application's own threads handle them.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    // Without the thread, calls of the application still check the peers. The next communicator
    // tries again to start the thread.
    Warn(std::string("cannot start the thread that checks peers: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watcher::AddWithoutStart(std::shared_ptr<Communicator> communicator) {
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
  while (true) {
    // An exception must not end the program. At the next check there may be memory again.
    try {
      CheckAll();
    } catch (...) {  // NOLINT(bugprone-empty-catch): nothing is left to do
    }
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kCheckInterval, [&] { return watched_.empty(); })) return;
  }
}

void Watcher::CheckAll() {
  const auto watched = All();
  // Log before CheckPeers, which may make incomplete messages of a lost peer look complete.
  if (TakeCountsSignal()) {
    std::string open;
    for (const auto& each : watched) open += each->DescribeIncompleteMessages();
    LogCounts(open);
  }
  for (const auto& each : watched) each->CheckPeers();
  if (extra_check_) extra_check_();
  GiveBackMemory(watched);
  CheckKillSwitch();
  WriteMetrics();
}

// Never waits for a call of the application. Other work of the GPU that waits for a peer is unknown
// here, for example in a graph.
void Watcher::GiveBackMemory(const Communicators& watched) {
  CollectiveWork& collectives = CollectiveWork::Get();
  collectives.Tick();
  bool waiting = false;
  for (const auto& each : watched) {
    const std::unique_lock lock(each->mutex(), std::try_to_lock);
    if (lock.owns_lock() && each->GiveBackMemory()) waiting = true;
  }
  if (!waiting) return;
  const std::unique_lock no_collectives(collectives.calls(), std::try_to_lock);
  if (!no_collectives.owns_lock() || collectives.MayRun()) return;
  std::vector<std::unique_lock<InlineMutex>> locks;
  for (const auto& each : watched) locks.emplace_back(each->mutex(), std::try_to_lock);
  const bool idle = std::ranges::all_of(locks, [](const auto& lock) { return lock.owns_lock(); }) &&
                    std::ranges::all_of(watched, [](const auto& each) { return each->IsIdle({}); });
  if (!idle) return;
  for (const auto& each : watched) each->CloseWithdrawn();
}

}  // namespace nccltune::sendrecv
