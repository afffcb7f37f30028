// SPDX-License-Identifier: Apache-2.0
// CUDA in software, for tests without a GPU: a machine with several GPUs in one process. A test
// that drives a machine step by step gets the same order from the same seed. Threads can drive it
// instead, beside the threads of the test.
#ifndef NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_
#define NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_

#include "sendrecv/cuda/driver.h"
#include "sendrecv/cuda/wait_kernels.h"
#include "sendrecv/soft_engine.h"
#include "standard.h"

namespace nccltune::sendrecv {

class SoftDriver;

struct SoftOptions {
  // See SoftEngine.
  bool one_connection = false;
  unsigned delay_bits = 9;
};

class SoftMachine {
 public:
  explicit SoftMachine(const SoftOptions& options)
      : engine_(options.one_connection, options.delay_bits) {}
  // Pending operations never run.
  ~SoftMachine();
  SoftMachine(const SoftMachine&) = delete;
  SoftMachine& operator=(const SoftMachine&) = delete;

  // Adds a GPU, in a process of its own. The driver lives as long as the machine.
  SoftDriver& Open();

  // Makes one step of a random operation that can run. Returns false if none can.
  bool Step(Random& random);
  // Makes steps until none is possible. Returns whether everything has run.
  bool Run(Random& random);

  // Starts threads that make the steps from now on.
  void Start(int threads, uint64_t seed);
  // Waits until the threads have run everything, and returns true; or returns false when nothing
  // more can run. No other thread may enqueue work or write a flag any more.
  bool Finish();

  // Returns what each stream with pending work waits for, if no operation can run.
  std::vector<std::string> Stuck();

  // Returns descriptions of all operations that CUDA does not allow.
  std::vector<std::string> Errors();

  // Sets a name for a stream, for use in texts.
  void Name(Stream stream, std::string name);

 private:
  friend class SoftDriver;
  using Lock = std::unique_lock<std::mutex>;

  bool StepLocked(Lock& lock, Random& random);
  void Serve(uint64_t seed);

  std::mutex mutex_;
  std::condition_variable changed_;
  SoftEngine engine_;
  std::vector<std::unique_ptr<SoftDriver>> drivers_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// One GPU as its process sees it. Operations are refused, with an error, in another driver's
// stream.
class SoftDriver final : public Driver {
 public:
  Stream NewStream() override;
  void DeleteStream(Stream /*stream*/) override {}
  Event NewEvent() override;
  void DeleteEvent(Event /*event*/) override {}
  bool Record(Event event, Stream stream) override;
  bool WaitEvent(Stream stream, Event event) override;
  bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) override;
  bool WriteValue(Stream stream, Flag& flag, uint32_t value) override;
  bool WaitValue(Stream stream, Flag& flag, uint32_t value) override;
  bool Capturing(Stream /*stream*/) override { return false; }
  GroupStarts& starts() override { return starts_; }
  // The limits of the kernels are in steps. A kernel never expires.
  bool LaunchGate(Stream stream, const GateKernel& gate) override;
  bool LaunchExchange(Stream stream, const ExchangeKernel& exchange) override;
  bool IsComplete(Stream stream) override;
  bool HasDefaultPriority(Stream stream) override { return !other_priority_.contains(stream); }
  // Sets another priority for the stream. It changes nothing else.
  void SetOtherPriority(Stream stream) { other_priority_.insert(stream); }

  // Sets a function that is called before each operation of the library, so that others can run.
  void SetPause(std::function<void()> pause) { pause_ = std::move(pause); }
  void Pause() const {
    if (pause_) pause_();
  }

  // Stands for a kernel. `body` is called when the kernel runs, and may call the driver. With
  // `until` the kernel begins and then waits until that returns true, as NCCL's kernels wait for
  // each other. Any thread may call `until` at any time; it must not call the driver or the
  // machine.
  bool Kernel(Stream stream, std::function<void()> body, std::function<bool()> until = nullptr);

  DeviceAddress Allocate(size_t bytes);
  // Maps memory of another GPU into this process, like IPC, and returns its address here.
  DeviceAddress Import(DeviceAddress address);

  // Reads at once, as a kernel or the test. Returns false, with an error, if this process cannot
  // reach all of the memory.
  bool Read(DeviceAddress from, void* to, size_t bytes);
  bool Write(DeviceAddress to, const void* from, size_t bytes);

 private:
  friend class SoftMachine;
  SoftDriver(SoftMachine& machine, size_t gpu) : machine_(machine), gpu_(gpu) {}

  bool Enqueue(Stream stream, const char* call, Work work);
  bool CopyByKernel(const ExchangeKernel::Pull& pull);
  // The caller holds the lock.
  bool EnqueueLocked(Stream stream, const char* call, Work work);
  void Error(const std::string& text);
  uint8_t* Find(DeviceAddress address, size_t bytes, const char* call);

  SoftMachine& machine_;
  const size_t gpu_;
  std::map<Event, std::shared_ptr<const Mark>> events_;  // null: never recorded
  std::set<Stream> other_priority_;
  std::function<void()> pause_;
  GroupStarts starts_;
  uint64_t started_ = 0;  // largest number of a group that has started
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_DRIVER_H_
