// SPDX-License-Identifier: Apache-2.0
//
// CUDA in software, for tests without a GPU: machines with several GPUs in one process. A test that
// drives a machine step by step gets the same order from the same seed. Threads can drive it
// instead, beside the threads of the test.
#ifndef NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_
#define NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sendrecv/cuda/driver.h"
#include "sendrecv/cuda/wait_kernels.h"
#include "sendrecv/soft_engine.h"

namespace nccltune::sendrecv {

class SoftDriver;

struct SoftOptions {
  int gpus = 2;
  // The number of queues of each GPU in each process, like CUDA_DEVICE_MAX_CONNECTIONS. Streams are
  // assigned to them round robin, and a waiting stream blocks all others of its queue. 0: each
  // stream has its own queue.
  size_t hardware_queues = 0;
  // All streams of a GPU in a process share one connection: see SoftEngine::NewSharedContext.
  // Replaces `hardware_queues`.
  bool one_connection = false;
  // The longest delay before an operation or a piece of a copy is 2 to this power, in steps.
  unsigned delay_bits = 9;
  // Seed of the delays when threads or Synchronize make the steps.
  uint64_t seed = 1;
};

class SoftMachine {
 public:
  explicit SoftMachine(const SoftOptions& options);
  // Pending operations never run.
  ~SoftMachine();
  SoftMachine(const SoftMachine&) = delete;
  SoftMachine& operator=(const SoftMachine&) = delete;

  // Opens a GPU in a new process, or another GPU in the process of `beside`. The driver lives as
  // long as the machine.
  SoftDriver& Open(int gpu);
  SoftDriver& Open(int gpu, const SoftDriver& beside);

  // Makes one step of a random operation that can run. Returns false if none can.
  bool Step(Random& random);
  // Makes steps until none is possible. Returns whether everything has run.
  bool Run(Random& random);

  // Starts threads that make the steps from now on.
  void Start(int threads);

  // While it lives, the machine assumes that this thread may still enqueue work or write a flag,
  // unless the thread is in Synchronize or Stuck. At most one for each thread.
  class Host {
   public:
    explicit Host(SoftMachine& machine);
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

   private:
    SoftMachine& machine_;
  };

  // Calls `run` with each number below `count`, each in its own thread with a Host. Returns when
  // all have ended. The machine does not count as stuck while one of them has not started.
  void RunHosts(int count, const std::function<void(int)>& run);

  // Returns the streams with pending work if no operation can run and no Host can change that.
  // Empty: all work is complete, or some operation can run.
  std::vector<Waiting> Stuck();

  // Returns descriptions of all operations that CUDA does not allow.
  std::vector<std::string> Errors();

  // Sets a name for a stream or a flag, for use in texts.
  void Name(const void* what, std::string name);

 private:
  friend class SoftDriver;
  using Lock = std::unique_lock<std::mutex>;

  SoftDriver& OpenAs(int process, int gpu);
  bool StepLocked(Lock& lock, Random& random);
  void Serve(uint64_t seed);
  bool StuckLocked() const;
  bool Synchronize(uint64_t stream, std::chrono::milliseconds limit);

  const SoftOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  SoftEngine engine_;
  std::set<std::thread::id> hosts_;
  size_t hosts_to_come_ = 0;
  Random own_random_;
  int processes_ = 0;
  uint64_t events_ = 0;
  std::vector<std::unique_ptr<SoftDriver>> drivers_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// One GPU as one process sees it. Operations are refused, with an error, in a deleted stream, in
// another driver's stream and under capture.
class SoftDriver final : public Driver {
 public:
  Stream NewStream() override;
  void DeleteStream(Stream stream) override;
  Event NewEvent() override;
  void DeleteEvent(Event event) override;
  bool Record(Event event, Stream stream) override;
  // The event may belong to another driver of the process.
  bool WaitEvent(Stream stream, Event event) override;
  bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) override;
  bool WriteValue(Stream stream, Flag& flag, uint32_t value) override;
  bool WaitValue(Stream stream, Flag& flag, uint32_t value) override;
  bool Capturing(Stream stream) override;
  GroupStarts& starts() override { return starts_; }
  // The limits of the kernels are in steps. A kernel never expires.
  bool LaunchGate(Stream stream, const GateKernel& gate) override;
  bool LaunchExchange(Stream stream, const ExchangeKernel& exchange) override;
  bool IsComplete(Stream stream) override;
  bool HasDefaultPriority(Stream stream) override;
  // Sets another priority for the stream. It changes nothing else.
  void SetOtherPriority(Stream stream);

  // Stands for a kernel. `body` is called when the kernel runs, and may call the driver. With
  // `until` the kernel begins and then waits until that returns true, as NCCL's kernels wait for
  // each other. Any thread may call `until` at any time; it must not call the driver or the
  // machine.
  bool Kernel(Stream stream, std::function<void()> body, std::function<bool()> until = nullptr);
  void SetCapturing(Stream stream, bool capturing);

  // After this many enqueuing calls, the next one is refused.
  void RefuseAfter(size_t calls);
  // Ends the process as by a signal. Its pending operations never run on any GPU. Memory that
  // others imported from it stays. Threads that still call its drivers are refused without an
  // error.
  void Kill();

  // Waits for the stream. Returns true if all work has run; false after the limit, or at once if
  // the machine is stuck. Makes the steps itself if the machine has no threads.
  bool Synchronize(Stream stream, std::chrono::milliseconds limit = std::chrono::minutes(1));

  DeviceAddress Allocate(size_t bytes);
  // Allocates at an address that was freed, as allocators may. Returns false if it is not free.
  bool AllocateAt(DeviceAddress at, size_t bytes);
  // Frees the memory at once, also if operations use it. Each later use, in any process, is an
  // error.
  void Free(DeviceAddress address);
  // Maps the memory at `address` of `owner` into this process, like IPC, and returns its address
  // here. 0: there is no memory.
  DeviceAddress Import(const SoftDriver& owner, DeviceAddress address);
  void Unmap(DeviceAddress start);

  // Reads at once, as a kernel or the test. Returns false, with an error, if this process cannot
  // reach all of the memory.
  bool Read(DeviceAddress from, void* to, size_t bytes);
  bool Write(DeviceAddress to, const void* from, size_t bytes);

  int gpu() const { return gpu_; }

 private:
  friend class SoftMachine;
  SoftDriver(SoftMachine& machine, size_t context, int process, int gpu);

  bool Enqueue(Stream stream, const char* call, Work work);
  bool CopyByKernel(const ExchangeKernel::Pull& pull);
  // The caller holds the lock.
  bool Takes(Stream stream, const char* call);
  bool Refuses();
  void Error(const std::string& text);
  uint8_t* Find(DeviceAddress address, size_t bytes, const char* call);

  SoftMachine& machine_;
  const size_t context_;
  const int process_;
  const int gpu_;
  std::map<uint64_t, std::shared_ptr<const Mark>> events_;  // null: never recorded
  std::set<uint64_t> capturing_;
  std::set<uint64_t> other_priority_;
  GroupStarts starts_;
  uint64_t started_ = 0;  // largest number of a group that has started
  std::optional<size_t> refuse_after_;
  bool killed_ = false;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_
