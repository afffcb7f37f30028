// SPDX-License-Identifier: Apache-2.0
// The threads of the process that serve all connections. A flow (a TCP connection) always stays
// with the same thread. Threads without work sleep.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/clock.h"
#include "net/kernel_facts.h"
#include "net/socket.h"

namespace nccltune::net {

// epoll events that mean: the peer has closed the socket, or the socket has failed.
inline constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
// Interval of the periodic checks of timeouts and statistics.
inline constexpr int64_t kBetweenTicksNs = 100 * kNsPerMs;

// Work that a pool thread does when a socket is ready or a time has come. All calls run in that
// thread, one task at a time.
class Task {
 public:
  virtual ~Task() = default;

  // Called after epoll has reported `events` for the task's socket.
  virtual void Ready(uint32_t events) = 0;

  // Does the work that is possible without blocking. Returns whether anything was done. Called in
  // every turn of the thread's loop.
  virtual bool Work(int64_t now_ns) = 0;

  // Returns the time at which Work must be called even without an event; INT64_MAX if there is
  // none.
  virtual int64_t NextNs() const { return INT64_MAX; }

  // Called after Ready or Work threw. A flow then fails its connection. The other tasks (acceptors,
  // closing sockets) continue their work.
  virtual void OnException(const char* what) noexcept = 0;

  // Returns whether many requests are outstanding. The application then does not wait for a single
  // request, so low latency is not needed.
  virtual bool IsSaturated(int64_t now_ns) const {
    (void)now_ns;
    return false;
  }
};

class PoolThread {
 public:
  // `spin_ns` is the time that the thread polls before it sleeps. With `yields`, the thread yields
  // the CPU after each poll. Without `yields`, the thread does not spin while a task has many
  // outstanding requests (IsSaturated).
  PoolThread(int number, int64_t spin_ns, bool yields = false);
  ~PoolThread();
  PoolThread(const PoolThread&) = delete;
  PoolThread& operator=(const PoolThread&) = delete;

  // Returns whether epoll, the eventfd and the thread were created.
  bool works() const { return thread_.joinable(); }
  // Returns the error (errno) if works() is false.
  int error() const { return error_; }

  // Adds a task. Returns the task's number for Watch and Remove.
  uint64_t Add(Task* task);
  // Removes a task. The task is not called any more after Remove has returned. A task must not call
  // Remove.
  void Remove(uint64_t number);

  // Makes the thread call the task's Ready for `events` (edge-triggered) until the socket is
  // closed. Returns 0 or the error of epoll_ctl. After an error no event is reported, so the task
  // cannot use the socket.
  [[nodiscard]] int Watch(uint64_t number, int fd, uint32_t events);

  // Wakes the thread because a task has work. The caller must publish the work first, by a
  // sequentially consistent store. Callable from any thread; cheap if the thread is awake.
  void Wake();
  bool asleep() const { return asleep_.load(); }
  // Assigns work to the thread. Returns false if the thread is asleep, or if `most` calls have been
  // made since the thread was last idle. The caller must publish the work first, by a sequentially
  // consistent store.
  bool TryAssign(int most) { return !asleep_.load() && assigned_.fetch_add(1) < most; }

  // Sets the CPUs that the thread may run on.
  void SetCpus(const CpuSet& cpus);

 private:
  void Run() noexcept;
  void RunUntilIdle(int64_t* worked_ns);
  bool Turn(int timeout_ms);
  template <typename Call>
  void CallTask(Task& task, const Call& call) noexcept;
  int SleepMs();
  bool IsSaturated(int64_t now_ns);

  Descriptor epoll_;
  Descriptor event_;
  std::mutex mutex_;  // held while tasks run
  std::unordered_map<uint64_t, Task*> tasks_;
  uint64_t last_number_ = 0;
  std::atomic<bool> asleep_{false};
  std::atomic<int> assigned_{0};
  std::atomic<bool> stop_{false};
  bool threw_ = false;  // a task threw in the last turn
  int error_ = 0;
  int64_t look_ns_;
  bool yields_;
  std::thread thread_;
};

// Sockets of closed connections whose last bytes are still being sent.
class ClosingSockets final : public Task {
 public:
  // Calls Add last, because the thread may call this object immediately afterwards.
  explicit ClosingSockets(PoolThread& worker) : worker_(worker) { number_ = worker_.Add(this); }
  // Waits at most two seconds for data that is being sent.
  ~ClosingSockets() override;
  ClosingSockets(const ClosingSockets&) = delete;
  ClosingSockets& operator=(const ClosingSockets&) = delete;

  void Add(Descriptor socket, std::span<const std::byte> rest);

  void Ready(uint32_t /*events*/) override {}
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;
  void OnException(const char* /*what*/) noexcept override {}

 private:
  PoolThread& worker_;
  uint64_t number_ = 0;
  std::atomic<size_t> count_ = 0;
  int64_t next_ns_ = 0;
  std::mutex mutex_;
  struct Entry {
    ClosingSocket socket;
    int64_t until_ns;
  };
  std::vector<Entry> all_;
};

class Pool {
 public:
  // Returns the pool of the process. Creates a pool with `threads` threads if there is none. The
  // pool lives as long as any pointer to the pool. Its threads may run on the CPUs of every thread
  // that has called Get, because NCCL binds the threads of each GPU near that GPU. Returns null and
  // sets `*error` if no thread can be created.
  static std::shared_ptr<Pool> Get(int threads, int* error);

  explicit Pool(int threads);

  // Also allows the threads to run on the CPUs of the calling thread.
  void AddCpusOfCaller();

  // Sends the last bytes of a flow and closes its socket.
  void CloseGracefully(Descriptor socket, std::span<const std::byte> rest) {
    closing_sockets_->Add(std::move(socket), rest);
  }

  int threads() const { return static_cast<int>(workers_.size()); }
  // Returns the errno value if fewer threads than requested were created, else 0.
  int error() const { return error_; }
  // The direction that a thread serves. Different threads send and receive. With one thread for
  // both, each direction waits for the other: throughput was 1.7 times lower on a machine with 64
  // cores.
  enum class Role { kSend, kReceive };

  // A spinning thread polls for a while after its last work, so that a message of a few hundred KiB
  // does not wait for a thread to wake. Few threads spin, because spinning takes CPU time from
  // working threads.
  enum class Kind { kSpinning, kOther };

  // Returns the thread of that role and kind with the fewest users; equal threads are used
  // alternately. A caller is a user until it drops the returned pointer. The caller must drop the
  // pointer before the pool ends. `kind` is ignored for a role with at most two threads.
  std::shared_ptr<PoolThread> Pick(Role role, Kind kind);

 private:
  // Threads that send come first, then as many that receive, or one fewer.
  std::vector<std::shared_ptr<PoolThread>> workers_;
  int error_ = 0;
  std::mutex mutex_;
  size_t next_ = 0;
  CpuSet cpus_;                                      // CPUs that the threads may run on
  std::unique_ptr<ClosingSockets> closing_sockets_;  // destroyed before the threads
};

}  // namespace nccltune::net
