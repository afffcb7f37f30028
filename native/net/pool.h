// SPDX-License-Identifier: Apache-2.0
//
// The threads of the process that serve all connections. A flow belongs to one of them for good; a
// thread without work sleeps.
#ifndef NCCLTUNE_NET_POOL_H_
#define NCCLTUNE_NET_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/socket.h"

namespace nccltune::net {

// Something that a worker does when a socket is ready or time has come. All of it runs in the
// worker's thread, one task at a time.
class Task {
 public:
  virtual ~Task() = default;

  // The socket told `events` of epoll.
  virtual void Ready(uint32_t events) = 0;

  // Do what can be done without waiting; true where something was done. Called in every turn.
  virtual bool Work(int64_t now_ns) = 0;

  // When to be called at the latest, though nothing is ready; INT64_MAX: never.
  virtual int64_t NextNs() const { return INT64_MAX; }

  // So much is under way that nobody waits for the next piece of it.
  virtual bool Plenty(int64_t now_ns) const {
    (void)now_ns;
    return false;
  }
};

class Worker {
 public:
  // `look_ns`: so long it looks for work before it sleeps; a lookout not at all where there is
  // plenty.
  Worker(int number, int64_t look_ns);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // epoll, its event and the thread are there.
  bool works() const { return thread_.joinable(); }

  // From now on `task` is called. Its number is for Watch.
  uint64_t Add(Task* task);
  // The task is not called any more when this returns. Not from a task.
  void Remove(uint64_t number);

  // Tells the task of `events` (edge-triggered) until the socket is closed.
  bool Watch(uint64_t number, int fd, uint32_t events);

  // Work is there for one of its tasks: what it is told by must be an atomic that was stored
  // before, in the order of all (seq_cst). From any thread; costs nothing while it is awake.
  void Wake();
  bool asleep() const { return asleep_.load(); }
  // It is awake, and fewer than `most` rely on it since it last found nothing to do: the caller now
  // does as well. What it is to find was stored before, in the order of all.
  bool Rely(int most) { return !asleep_.load() && relied_.fetch_add(1) < most; }

  size_t tasks() const { return count_.load(std::memory_order_relaxed); }

 private:
  void Run();
  bool Turn(int timeout_ms);
  int SleepMs();
  bool Plenty(int64_t now_ns);

  Socket epoll_;
  Socket event_;
  std::mutex mutex_;  // held while tasks are called
  std::unordered_map<uint64_t, Task*> tasks_;
  uint64_t last_number_ = 0;
  std::atomic<size_t> count_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<int> relied_{0};
  std::atomic<bool> stop_{false};
  int64_t look_ns_;
  std::thread thread_;
};

// Sockets whose connection is closed and whose last bytes are on their way.
class Endings final : public Task {
 public:
  // The worker comes by as soon as it knows of this: it is told last.
  explicit Endings(Worker& worker) : worker_(worker) { number_ = worker_.Add(this); }
  // For two seconds at most what is on its way is waited for.
  ~Endings() override;
  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;

  void Add(Socket socket, std::span<const std::byte> rest);

  void Ready(uint32_t /*events*/) override {}
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 private:
  Worker& worker_;
  uint64_t number_ = 0;
  std::atomic<size_t> count_ = 0;
  int64_t next_ns_ = 0;
  std::mutex mutex_;
  struct One {
    Ending ending;
    int64_t until_ns;
  };
  std::vector<One> all_;
};

class Pool {
 public:
  // The pool of the process, made with `threads` where there is none. It ends with the last holder.
  // Null: threads cannot be had.
  static std::shared_ptr<Pool> Get(int threads);

  explicit Pool(int threads);

  // The last bytes of a flow, and its end.
  void End(Socket socket, std::span<const std::byte> rest) {
    endings_->Add(std::move(socket), rest);
  }

  int threads() const { return static_cast<int>(workers_.size()); }
  // Sending and receiving are different threads': one that does both lets each wait for the other,
  // and moved 1.7 times less on a machine with 64 cores.
  enum class Role { kSend, kReceive };

  // Lookouts look for work long after the last, so that a message of a few hundred KiB waits for
  // nobody to wake. They are few: who looks takes from who works.
  enum class Kind { kLookout, kOther };

  // The one of that role and kind with the fewest tasks; ties go round. A small pool has one kind.
  Worker& Pick(Role role, Kind kind);

 private:
  std::vector<std::unique_ptr<Worker>> workers_;  // senders first, then as many receivers
  std::mutex mutex_;
  size_t next_ = 0;
  std::unique_ptr<Endings> endings_;  // before the workers' end
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_POOL_H_
