// SPDX-License-Identifier: Apache-2.0
//
// CUDA in software, for tests without a GPU: machines with several GPUs in one process. One seed,
// one order: a test that drives a machine step by step sees the same run again. Or threads drive
// it, beside the threads of the test.
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

#include "sendrecv/driver.h"
#include "sendrecv/soft_engine.h"

namespace nccltune::sendrecv {

class SoftDriver;

struct SoftOptions {
  int gpus = 2;
  // Of each GPU in each process, as CUDA_DEVICE_MAX_CONNECTIONS: streams share them in turn, and
  // what waits in one keeps all behind it waiting. 0: each stream has its own.
  size_t hardware_queues = 0;
  // The longest delay before an operation, or a piece of a copy, is 2 to this power, in steps.
  unsigned delay_bits = 9;
  // Of the delays where threads, or Synchronize, make the steps.
  uint64_t seed = 1;
};

class SoftMachine {
 public:
  explicit SoftMachine(const SoftOptions& options);
  // What is pending never runs.
  ~SoftMachine();
  SoftMachine(const SoftMachine&) = delete;
  SoftMachine& operator=(const SoftMachine&) = delete;

  // A process of its own on a GPU, or another GPU in the process of `beside`. Lives as the machine.
  SoftDriver& Open(int gpu);
  SoftDriver& Open(int gpu, const SoftDriver& beside);

  // One step of an operation that can run, chosen by chance. False: none can.
  bool Step(Random& random);
  // Steps until none can be made. True: everything has run.
  bool Run(Random& random);

  // Or that many threads make the steps, from now on.
  void Start(int threads);

  // The thread that makes it may yet enqueue something or write a flag, while it lives; but not
  // while the thread is in Synchronize or Stuck. One for a thread.
  class Host {
   public:
    explicit Host(SoftMachine& machine);
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

   private:
    SoftMachine& machine_;
  };

  // Calls `run` with each number below `count`, each in a thread that has a Host, and returns when
  // all have ended. None of them finds the machine stuck because another is not there yet.
  void RunHosts(int count, const std::function<void(int)>& run);

  // Every stream that has something to do, where no operation can run and no Host is there to
  // change it. Empty: all is done, or something moves.
  std::vector<Waiting> Stuck();

  // What was done that CUDA does not allow.
  std::vector<std::string> Errors();

  // For the texts: of a stream or a flag.
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

// One GPU as one process sees it. An operation in a stream that is deleted, of another driver or
// under capture is refused, and an error.
class SoftDriver final : public Driver {
 public:
  Stream NewStream() override;
  void DeleteStream(Stream stream) override;
  Event NewEvent() override;
  void DeleteEvent(Event event) override;
  bool Record(Event event, Stream stream) override;
  // Also of an event of another driver of the process.
  bool WaitEvent(Stream stream, Event event) override;
  bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) override;
  bool WriteValue(Stream stream, Flag& flag, uint32_t value) override;
  bool WaitValue(Stream stream, Flag& flag, uint32_t value) override;
  bool Capturing(Stream stream) override;

  // Stands for a kernel: `body` is called when it runs, and may call the driver. With `until` it
  // begins and then waits until that is true, as NCCL's kernels wait for each other; `until` is
  // asked often, by any thread, and must not call the driver or the machine.
  bool Kernel(Stream stream, std::function<void()> body, std::function<bool()> until = nullptr);
  void SetCapturing(Stream stream, bool capturing);

  // After so many more, one call that enqueues is refused.
  void RefuseAfter(size_t calls);
  // The process ends as by a signal: what it enqueued and has not run never will, on no GPU of it.
  // What others imported of its memory stays. Threads that still call its drivers are refused and
  // make no errors.
  void Kill();

  // True: all that was enqueued has run. False: not within the limit, or the machine is stuck,
  // which is told at once. Makes the steps itself where the machine has no threads.
  bool Synchronize(Stream stream, std::chrono::milliseconds limit = std::chrono::minutes(1));

  DeviceAddress Allocate(size_t bytes);
  // At an address that was freed, as allocators give it again. False: it is not free.
  bool AllocateAt(DeviceAddress at, size_t bytes);
  // At once, whatever is under way; who still uses it, here or elsewhere, makes an error.
  void Free(DeviceAddress address);
  // Where this process sees what is at `address` in `owner`'s, as with IPC. 0: nothing is there.
  DeviceAddress Import(const SoftDriver& owner, DeviceAddress address);
  void Unmap(DeviceAddress start);

  // By a kernel or by the test, at once. False: not within memory that this process reaches, which
  // is an error, too.
  bool Read(DeviceAddress from, void* to, size_t bytes);
  bool Write(DeviceAddress to, const void* from, size_t bytes);

  int gpu() const { return gpu_; }

 private:
  friend class SoftMachine;
  SoftDriver(SoftMachine& machine, size_t context, int process, int gpu);

  bool Enqueue(Stream stream, const char* call, Work work);
  // The lock is held.
  bool Takes(Stream stream, const char* call);
  bool Refuses();
  void Error(const std::string& text);
  uint8_t* Find(DeviceAddress address, size_t bytes, const char* call);

  SoftMachine& machine_;
  const size_t context_;
  const int process_;
  const int gpu_;
  std::map<uint64_t, std::shared_ptr<const Mark>> events_;  // null: nothing was recorded
  std::set<uint64_t> capturing_;
  std::optional<size_t> refuse_after_;
  bool killed_ = false;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_
