// SPDX-License-Identifier: Apache-2.0
#include "net/pool.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <system_error>

#include "net/clock.h"

namespace nccltune::net {
namespace {

// So long a lookout looks for work before it sleeps, and so long the others do where there are
// lookouts and where there are none. When all of 24 threads on 32 cores looked for 500 us, in two
// processes, bursts took 1.7 times as long. To be woken takes a thread of a virtual machine up to
// 40 us.
constexpr int64_t kLookoutNs = kNsPerMs;
constexpr int64_t kOtherLookNs = 0;
constexpr int64_t kOnlyLookNs = 50'000;
constexpr size_t kMostLookouts = 2;

// The first of them send, the others receive; one alone does both.
size_t Senders(size_t workers) { return (workers + 1) / 2; }

// Of `workers` that do the same.
size_t Lookouts(size_t workers) { return std::min(workers / 3, kMostLookouts); }

constexpr uint64_t kOwnEvent = 0;
// So long a peer may take to read what was sent before a close, and the process's last one.
constexpr int64_t kEndNs = 30 * kNsPerSecond;
constexpr int64_t kLastEndNs = 2 * kNsPerSecond;
constexpr int64_t kBetweenEndsNs = 5 * kNsPerMs;

// Signals are the application's: none is handled by a thread of ours.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace

Worker::Worker(int number, int64_t look_ns)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      look_ns_(look_ns) {
  if (!epoll_.open() || !event_.open()) return;
  epoll_event own = {};
  own.events = EPOLLIN | EPOLLET;
  own.data.u64 = kOwnEvent;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, event_.fd(), &own) != 0) return;
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
    return;
  }
  const std::string name = "nccltune-net" + std::to_string(number);
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Worker::~Worker() {
  stop_ = true;
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(event_.fd(), &one, sizeof(one));
  thread_.join();
}

uint64_t Worker::Add(Task* task) {
  const std::scoped_lock lock(mutex_);
  tasks_.emplace(++last_number_, task);
  count_ = tasks_.size();
  return last_number_;
}

void Worker::Remove(uint64_t number) {
  const std::scoped_lock lock(mutex_);
  tasks_.erase(number);
  count_ = tasks_.size();
}

bool Worker::Watch(uint64_t number, int fd, uint32_t events) {
  epoll_event wanted = {};
  wanted.events = events | EPOLLET;
  wanted.data.u64 = number;
  return epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &wanted) == 0;
}

void Worker::Wake() {
  if (!asleep_.load() || !asleep_.exchange(false)) return;
  const uint64_t one = 1;
  (void)!write(event_.fd(), &one, sizeof(one));
}

void Worker::Run() {
  int64_t worked_ns = NowNs();
  while (!stop_) {
    if (Turn(0)) {
      worked_ns = NowNs();
      continue;
    }
    // Once more before it sleeps: somebody may have relied on it in this very moment.
    if (relied_.load(std::memory_order_relaxed) != 0) {
      relied_ = 0;
      continue;
    }
    const int64_t now = NowNs();
    // The threads of a small pool look even then: so short a look costs less than to be woken.
    const bool lookout = look_ns_ == kLookoutNs;
    if (now - worked_ns < look_ns_ && !(lookout && Plenty(now))) continue;
    asleep_ = true;
    // Once more: somebody may have looked at `asleep_` just before. Who wakes us in this very
    // moment has taken the mark away, and must find us awake.
    bool worked = Turn(0);
    if (!worked && asleep_) worked = Turn(stop_ ? 0 : SleepMs());
    asleep_ = false;
    if (worked) worked_ns = NowNs();
  }
}

bool Worker::Plenty(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(tasks_, [&](const auto& one) { return one.second->Plenty(now_ns); });
}

int Worker::SleepMs() {
  const std::scoped_lock lock(mutex_);
  int64_t next = INT64_MAX;
  for (const auto& [number, task] : tasks_) next = std::min(next, task->NextNs());
  if (next == INT64_MAX) return -1;
  const int64_t ms = (next - NowNs() + kNsPerMs - 1) / kNsPerMs;
  return static_cast<int>(std::clamp<int64_t>(ms, 1, 60'000));
}

bool Worker::Turn(int timeout_ms) {
  std::array<epoll_event, 64> events;
  const int ready =
      epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), timeout_ms);
  const std::scoped_lock lock(mutex_);
  bool worked = false;
  for (int i = 0; i < ready; ++i) {
    // The struct is packed: no reference can be bound to its number.
    const epoll_event& event = events[static_cast<size_t>(i)];
    const uint64_t number = event.data.u64;
    // Edge-triggered: to be told is all it is for.
    if (number == kOwnEvent) continue;
    // By number: a task may be gone since.
    const auto found = tasks_.find(number);
    if (found != tasks_.end()) found->second->Ready(event.events);
    worked = true;
  }
  const int64_t now = NowNs();
  for (const auto& [number, task] : tasks_) worked |= task->Work(now);
  return worked;
}

Endings::~Endings() {
  worker_.Remove(number_);
  const int64_t until = NowNs() + kLastEndNs;
  while (count_ != 0 && NowNs() < until) {
    next_ns_ = 0;
    if (!Work(NowNs())) usleep(1000);
  }
}

void Endings::Add(Socket socket, std::span<const std::byte> rest) {
  Ending ending(std::move(socket), rest);
  // Nearly always all of it has gone.
  if (ending.Step()) return;
  {
    const std::scoped_lock lock(mutex_);
    all_.push_back({std::move(ending), NowNs() + kEndNs});
    count_ = all_.size();
  }
  worker_.Wake();
}

bool Endings::Work(int64_t now_ns) {
  if (count_ == 0 || now_ns < next_ns_) return false;
  next_ns_ = now_ns + kBetweenEndsNs;
  const std::scoped_lock lock(mutex_);
  const size_t gone =
      std::erase_if(all_, [&](One& one) { return one.ending.Step() || now_ns > one.until_ns; });
  count_ = all_.size();
  return gone != 0;
}

int64_t Endings::NextNs() const { return count_ == 0 ? INT64_MAX : NowNs() + kBetweenEndsNs; }

Pool::Pool(int threads) {
  const auto all = static_cast<size_t>(std::max(threads, 0));
  const size_t senders = Senders(all);
  for (size_t i = 0; i < all; ++i) {
    const size_t lookouts = Lookouts(i < senders ? senders : all - senders);
    const bool lookout = (i < senders ? i : i - senders) < lookouts;
    const int64_t look_ns = lookouts == 0 ? kOnlyLookNs : lookout ? kLookoutNs : kOtherLookNs;
    auto worker = std::make_unique<Worker>(static_cast<int>(i), look_ns);
    if (!worker->works()) break;
    workers_.push_back(std::move(worker));
  }
  if (!workers_.empty()) endings_ = std::make_unique<Endings>(*workers_.front());
}

std::shared_ptr<Pool> Pool::Get(int threads) {
  // Never destroyed: a static's end would come before the threads' in an unload.
  static std::mutex* const mutex = new std::mutex;
  static std::weak_ptr<Pool>* const shared = new std::weak_ptr<Pool>;
  const std::scoped_lock lock(*mutex);
  std::shared_ptr<Pool> pool = shared->lock();
  if (pool == nullptr) {
    pool = std::make_shared<Pool>(threads);
    if (pool->threads() == 0) return nullptr;
    *shared = pool;
  }
  return pool;
}

Worker& Pool::Pick(Role role, Kind kind) {
  const std::scoped_lock lock(mutex_);
  const size_t senders = Senders(workers_.size());
  const bool sends = role == Role::kSend || workers_.size() == 1;
  size_t first = sends ? 0 : senders;
  size_t count = sends ? senders : workers_.size() - senders;
  const size_t lookouts = Lookouts(count);
  if (kind == Kind::kLookout && lookouts != 0) {
    count = lookouts;
  } else {
    first += lookouts;
    count -= lookouts;
  }
  size_t best = first + next_ % count;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = first + (next_ + i) % count;
    if (workers_[at]->tasks() < workers_[best]->tasks()) best = at;
  }
  ++next_;
  return *workers_[best];
}

}  // namespace nccltune::net
