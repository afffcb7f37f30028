// SPDX-License-Identifier: Apache-2.0
#include "net/pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

#include "common/contain.h"

namespace nccltune::net {
namespace {

// How long an idle thread polls before it sleeps. The three constants are for a spinning thread,
// for another thread of the same pool, and for any thread of a small pool.
//
// Only few threads of a large pool spin. When all of 24 threads on 32 cores spun for 500 us, in two
// processes, bursts took 1.7 times as long. Waking a thread takes up to 40 us in a virtual machine,
// and milliseconds if other threads poll on few CPUs. So all threads of a small pool spin, and
// yield the CPU after each poll.
constexpr int64_t kSpinNs = kNsPerMs;
constexpr int64_t kOtherSpinNs = 0;
constexpr int64_t kSmallPoolSpinNs = kNsPerMs;
constexpr size_t kSpinningThreads = 2;  // spinning threads for sending, and as many for receiving

// Returns the number of threads that send. The first half of the threads send, the others receive.
// A single thread does both.
size_t Senders(size_t workers) { return (workers + 1) / 2; }

// Returns how many of the `workers` threads of one role are spinning threads. Returns 0 for a small
// pool, whose threads are all of one kind.
size_t SpinningThreads(size_t workers) {
  return workers <= kSpinningThreads ? 0 : kSpinningThreads;
}

constexpr uint64_t kOwnEvent = 0;
// Time limits for sending the last data of a closed connection: in normal operation, and when the
// pool ends.
constexpr int64_t kCloseLimitNs = 30 * kNsPerSecond;
constexpr int64_t kExitCloseLimitNs = 2 * kNsPerSecond;
constexpr int64_t kClosePollNs = 5 * kNsPerMs;
// Pause before a task that threw is called again.
constexpr int kAfterExceptionMs = 10;

// Blocks all signals while a pool thread is created. The thread inherits the signal mask, so it
// never runs the application's signal handlers.
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

PoolThread::PoolThread(int number, int64_t spin_ns, bool yields)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      look_ns_(spin_ns),
      yields_(yields) {
  if (!epoll_ || !event_) {
    error_ = errno;
    return;
  }
  epoll_event own = {};
  own.events = EPOLLIN | EPOLLET;
  own.data.u64 = kOwnEvent;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, event_.fd(), &own) != 0) {
    error_ = errno;
    return;
  }
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    error_ = error.code().value();
    return;
  } catch (const std::exception&) {
    error_ = ENOMEM;
    return;
  }
  // No allocation here: the thread is running, so nothing may throw any more.
  std::array<char, 16> name{};
  (void)std::snprintf(name.data(), name.size(), "nccltune-net%u",
                      static_cast<unsigned>(number) % 1000U);
  pthread_setname_np(thread_.native_handle(), name.data());
}

PoolThread::~PoolThread() {
  stop_ = true;
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(event_.fd(), &one, sizeof(one));
  thread_.join();
}

void PoolThread::SetCpus(const CpuSet& cpus) {
  // If the call fails, the thread keeps its CPUs, which is correct too.
  pthread_setaffinity_np(thread_.native_handle(), cpus.size() * sizeof(cpu_set_t), cpus.data());
}

uint64_t PoolThread::Add(Task* task) {
  const std::scoped_lock lock(mutex_);
  tasks_.emplace(++last_number_, task);
  return last_number_;
}

void PoolThread::Remove(uint64_t number) {
  const std::scoped_lock lock(mutex_);
  tasks_.erase(number);
}

int PoolThread::Watch(uint64_t number, int fd, uint32_t events) {
  epoll_event wanted = {};
  wanted.events = events | EPOLLET;
  wanted.data.u64 = number;
  return epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &wanted) == 0 ? 0 : errno;
}

void PoolThread::Wake() {
  if (!asleep_.load() || !asleep_.exchange(false)) return;
  const uint64_t one = 1;
  (void)!write(event_.fd(), &one, sizeof(one));
}

void PoolThread::Run() noexcept {
  int64_t worked_ns = NowNs();
  while (!stop_) {
    // CallTask handles the exceptions of tasks. Here only locking a mutex could throw.
    if (!Contain([&] { RunUntilIdle(&worked_ns); })) usleep(1000 * kAfterExceptionMs);
  }
}

// Runs the tasks once. If no task had work, spins or sleeps.
void PoolThread::RunUntilIdle(int64_t* worked_ns) {
  if (Turn(0)) {
    *worked_ns = NowNs();
    return;
  }
  // Run another turn before sleeping: another thread may have just assigned work to this thread.
  if (assigned_.load(std::memory_order_relaxed) != 0) {
    assigned_ = 0;
    return;
  }
  const int64_t now = NowNs();
  // Threads of a small pool (`yields_`) also spin while many requests are outstanding: that costs
  // less than waking a thread.
  if (now - *worked_ns < look_ns_ && (yields_ || !IsSaturated(now))) {
    if (yields_) sched_yield();
    return;
  }
  asleep_ = true;
  // Run another turn: another thread may have read `asleep_` just before it was set. A thread that
  // wakes this one clears `asleep_`; then this thread must not sleep.
  bool worked = Turn(0);
  if (!worked && asleep_) worked = Turn(stop_ ? 0 : SleepMs());
  asleep_ = false;
  if (worked) *worked_ns = NowNs();
}

bool PoolThread::IsSaturated(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(tasks_,
                             [&](const auto& one) { return one.second->IsSaturated(now_ns); });
}

int PoolThread::SleepMs() {
  const std::scoped_lock lock(mutex_);
  if (threw_) return kAfterExceptionMs;
  int64_t next = INT64_MAX;
  for (const auto& [number, task] : tasks_) next = std::min(next, task->NextNs());
  if (next == INT64_MAX) return -1;
  const int64_t ms = (next - NowNs() + kNsPerMs - 1) / kNsPerMs;
  return static_cast<int>(std::clamp<int64_t>(ms, 1, 60'000));
}

// Runs `call` on a task. If the task throws, calls its OnException. Other tasks continue.
template <typename Call>
void PoolThread::CallTask(Task& task, const Call& call) noexcept {
  const bool well = Contain([&] { call(task); }, [&](const char* what) { task.OnException(what); });
  if (!well) threw_ = true;
}

bool PoolThread::Turn(int timeout_ms) {
  std::array<epoll_event, 64> events;
  const int ready =
      epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), timeout_ms);
  const std::scoped_lock lock(mutex_);
  bool worked = false;
  threw_ = false;
  for (int i = 0; i < ready; ++i) {
    // Copy the number: the struct is packed, so no reference can be bound to `data.u64`.
    const epoll_event& event = events[static_cast<size_t>(i)];
    const uint64_t number = event.data.u64;
    // The eventfd only wakes the thread. It is edge-triggered, so it need not be read.
    if (number == kOwnEvent) continue;
    // Find the task by its number: the task may have been removed in the meantime.
    const auto found = tasks_.find(number);
    if (found != tasks_.end()) {
      CallTask(*found->second, [&](Task& task) { task.Ready(event.events); });
    }
    worked = true;
  }
  const int64_t now = NowNs();
  for (const auto& [number, task] : tasks_) {
    CallTask(*task, [&](Task& called) { worked |= called.Work(now); });
  }
  return worked;
}

ClosingSockets::~ClosingSockets() {
  worker_.Remove(number_);
  const int64_t until = NowNs() + kExitCloseLimitNs;
  while (count_ != 0 && NowNs() < until) {
    next_ns_ = 0;
    if (!Work(NowNs())) usleep(1000);
  }
}

void ClosingSockets::Add(Descriptor socket, std::span<const std::byte> rest) {
  ClosingSocket closing(std::move(socket), rest);
  // In most cases all data has been sent by now, and the socket is closed here.
  if (closing.Step()) return;
  {
    const std::scoped_lock lock(mutex_);
    all_.push_back({std::move(closing), NowNs() + kCloseLimitNs});
    count_ = all_.size();
  }
  worker_.Wake();
}

bool ClosingSockets::Work(int64_t now_ns) {
  if (count_ == 0 || now_ns < next_ns_) return false;
  next_ns_ = now_ns + kClosePollNs;
  const std::scoped_lock lock(mutex_);
  const size_t gone =
      std::erase_if(all_, [&](Entry& one) { return one.socket.Step() || now_ns > one.until_ns; });
  count_ = all_.size();
  return gone != 0;
}

int64_t ClosingSockets::NextNs() const { return count_ == 0 ? INT64_MAX : NowNs() + kClosePollNs; }

Pool::Pool(int threads) {
  const auto all = static_cast<size_t>(std::max(threads, 0));
  const size_t senders = Senders(all);
  for (size_t i = 0; i < all; ++i) {
    const size_t lookouts = SpinningThreads(i < senders ? senders : all - senders);
    const bool lookout = (i < senders ? i : i - senders) < lookouts;
    const int64_t spin_ns = lookouts == 0 ? kSmallPoolSpinNs : lookout ? kSpinNs : kOtherSpinNs;
    auto worker = std::make_shared<PoolThread>(static_cast<int>(i), spin_ns, lookouts == 0);
    if (!worker->works()) {
      error_ = worker->error();
      break;
    }
    workers_.push_back(std::move(worker));
  }
  if (!workers_.empty()) closing_sockets_ = std::make_unique<ClosingSockets>(*workers_.front());
}

std::shared_ptr<Pool> Pool::Get(int threads, int* error) {
  // The mutex and the pointer are never destroyed: during an unload, a static object would be
  // destroyed before the threads end.
  static std::mutex* const mutex = new std::mutex;
  static std::weak_ptr<Pool>* const shared = new std::weak_ptr<Pool>;
  const std::scoped_lock lock(*mutex);
  std::shared_ptr<Pool> pool = shared->lock();
  if (pool == nullptr) {
    pool = std::make_shared<Pool>(threads);
    if (pool->threads() == 0) {
      *error = pool->error();
      return nullptr;
    }
    *shared = pool;
  }
  pool->AddCpusOfCaller();
  return pool;
}

void Pool::AddCpusOfCaller() {
  const CpuSet added = CpusOfThread(0);
  const std::scoped_lock lock(mutex_);
  // The pool's threads inherited the CPUs of the first caller, so these are only recorded.
  if (cpus_.empty()) cpus_ = added;
  cpus_.resize(std::max(cpus_.size(), added.size()));
  bool more = false;
  for (size_t i = 0; i < added.size(); ++i) {
    const cpu_set_t before = cpus_[i];
    CPU_OR(&cpus_[i], &before, &added[i]);
    more = more || !CPU_EQUAL(&before, &cpus_[i]);
  }
  if (!more) return;
  for (const auto& worker : workers_) worker->SetCpus(cpus_);
}

std::shared_ptr<PoolThread> Pool::Pick(Role role, Kind kind) {
  const std::scoped_lock lock(mutex_);
  const size_t senders = Senders(workers_.size());
  const bool sends = role == Role::kSend || workers_.size() == 1;
  size_t first = sends ? 0 : senders;
  size_t count = sends ? senders : workers_.size() - senders;
  const size_t lookouts = SpinningThreads(count);
  if (kind == Kind::kSpinning && lookouts != 0) {
    count = lookouts;
  } else {
    first += lookouts;
    count -= lookouts;
  }
  size_t best = first + next_ % count;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = first + (next_ + i) % count;
    if (workers_[at].use_count() < workers_[best].use_count()) best = at;
  }
  ++next_;
  return workers_[best];
}

}  // namespace nccltune::net
