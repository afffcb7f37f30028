// SPDX-License-Identifier: Apache-2.0
// CUDA in software, for tests without a GPU: a machine with several GPUs in one process. A test
// that drives a machine step by step gets the same order from the same seed. Threads can drive it
// instead, beside the threads of the test.
#pragma once

#include "sendrecv/cuda/driver.h"
#include "sendrecv/cuda/wait_kernels.h"
#include "sendrecv/soft_engine.h"
#include "sendrecv/soft_kernels.h"
#include "standard.h"

namespace nccltune::sendrecv {

class SoftDriver;

struct SoftOptions {
  // See SoftEngine.
  bool one_connection = false;
  unsigned delay_bits = 9;
};

// How often threads poll flags: a thread of the test may write one without notifying the machine.
inline constexpr std::chrono::milliseconds kLook(1);

// Handles are numbers that are never reused, so that using an old one is detected.
inline uint64_t NumberOf(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

class SoftMachine {
 public:
  explicit SoftMachine(const SoftOptions& options)
      : engine_(options.one_connection, options.delay_bits) {}
  // Pending operations never run.
  ~SoftMachine() {
    {
      const Lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  SoftMachine(const SoftMachine&) = delete;
  SoftMachine& operator=(const SoftMachine&) = delete;

  // Adds a GPU, in a process of its own. The driver lives as long as the machine.
  SoftDriver& Open();

  // Makes one step of a random operation that can run. Returns false if none can.
  bool Step(Random& random) {
    Lock lock(mutex_);
    return StepLocked(lock, random);
  }
  // Makes steps until none is possible. Returns whether everything has run.
  bool Run(Random& random) {
    Lock lock(mutex_);
    while (StepLocked(lock, random)) {
    }
    return engine_.Idle();
  }

  // Starts threads that make the steps from now on.
  void Start(int threads, uint64_t seed) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, seed, i] { Serve(seed + static_cast<uint64_t>(i) + 1); });
    }
  }
  // Waits until the threads have run everything, and returns true; or returns false when nothing
  // more can run. No other thread may enqueue work or write a flag any more.
  bool Finish() {
    Lock lock(mutex_);
    while (!engine_.Idle() && engine_.Moves()) changed_.wait_for(lock, kLook);
    return engine_.Idle();
  }

  // Returns what each stream with pending work waits for, if no operation can run.
  std::vector<std::string> Stuck() {
    const Lock lock(mutex_);
    return engine_.Blocked();
  }

  // Returns descriptions of all operations that CUDA does not allow.
  std::vector<std::string> Errors() {
    const Lock lock(mutex_);
    return engine_.errors();
  }

  // Sets a name for a stream, for use in texts.
  void Name(Stream stream, std::string name) {
    const Lock lock(mutex_);
    engine_.Name(NumberOf(stream), std::move(name));
  }

 private:
  friend class SoftDriver;
  using Lock = std::unique_lock<std::mutex>;

  bool StepLocked(Lock& lock, Random& random) {
    SoftEngine::Body body;
    if (!engine_.Step(random, body)) return false;
    if (body.run) {
      lock.unlock();
      body.run();
      lock.lock();
    }
    if (body.stream != 0) engine_.Finish(body);
    changed_.notify_all();
    return true;
  }
  void Serve(uint64_t seed) {
    Random random(seed);
    Lock lock(mutex_);
    while (!stop_) {
      if (!StepLocked(lock, random)) {
        changed_.wait_for(lock, kLook);
        continue;
      }
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  SoftEngine engine_;
  std::vector<std::unique_ptr<SoftDriver>> drivers_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

inline void* HandleOf(uint64_t number) { return reinterpret_cast<void*>(number); }

// One GPU as its process sees it. Operations are refused, with an error, in another driver's
// stream.
class SoftDriver final : public Driver {
 public:
  Stream NewStream() override {
    const SoftMachine::Lock lock(machine_.mutex_);
    return HandleOf(machine_.engine_.NewStream(gpu_));
  }
  void DeleteStream(Stream /*stream*/) override {}
  Event NewEvent() override {
    const SoftMachine::Lock lock(machine_.mutex_);
    return events_.emplace(HandleOf(events_.size() + 1), nullptr).first->first;
  }
  void DeleteEvent(Event /*event*/) override {}
  bool Record(Event event, Stream stream) override {
    Pause();
    const SoftMachine::Lock lock(machine_.mutex_);
    auto mark = std::make_shared<Mark>(Mark{.stream = NumberOf(stream)});
    events_.at(event) = mark;
    return EnqueueLocked(stream, "Record", work::Record{std::move(mark)});
  }
  bool WaitEvent(Stream stream, Event event) override {
    Pause();
    const SoftMachine::Lock lock(machine_.mutex_);
    // An event that was never recorded counts as complete, as in CUDA.
    const std::shared_ptr<const Mark>& mark = events_.at(event);
    return mark == nullptr || EnqueueLocked(stream, "WaitEvent", work::WaitEvent{mark});
  }
  bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) override {
    return Enqueue(stream, "Copy", work::Copy{.to = to, .from = from, .bytes = bytes});
  }
  bool WriteValue(Stream stream, Flag& flag, uint32_t value) override {
    return Enqueue(stream, "WriteValue", work::WriteValue{.flag = &flag, .value = value});
  }
  bool WaitValue(Stream stream, Flag& flag, uint32_t value) override {
    return Enqueue(stream, "WaitValue", work::WaitValue{.flag = &flag, .value = value});
  }
  bool Capturing(Stream /*stream*/) override { return false; }
  GroupStarts& starts() override { return starts_; }
  // The limits of the kernels are in steps. A kernel never expires.
  bool LaunchGate(Stream stream, const GateKernel& gate) override {
    const auto own = std::make_shared<SoftGate<KernelView>>(KernelView{this}, gate);
    work::Kernel kernel;
    kernel.until = [this, own] { return own->Ends(machine_.engine_.now()); };
    kernel.wake = [own] { return own->GivesWay(); };
    return Enqueue(stream, "LaunchGate", std::move(kernel));
  }
  bool LaunchExchange(Stream stream, const ExchangeKernel& exchange) override {
    const auto own = std::make_shared<SoftExchange<KernelView>>(KernelView{this}, exchange);
    work::Kernel kernel;
    kernel.start = [own] { own->Begin(); };
    kernel.until = [this, own] { return own->Ends(machine_.engine_.now()); };
    return Enqueue(stream, "LaunchExchange", std::move(kernel));
  }
  bool IsComplete(Stream stream) override {
    Pause();
    const SoftMachine::Lock lock(machine_.mutex_);
    return machine_.engine_.Idle(NumberOf(stream));
  }
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
  bool Kernel(Stream stream, std::function<void()> body, std::function<bool()> until = nullptr) {
    const SoftMachine::Lock lock(machine_.mutex_);
    return EnqueueLocked(stream, "Kernel",
                         work::Kernel{.body = std::move(body), .until = std::move(until)});
  }

  DeviceAddress Allocate(size_t bytes) {
    const SoftMachine::Lock lock(machine_.mutex_);
    return machine_.engine_.memory().Allocate(gpu_, bytes);
  }
  // Maps memory of another GPU into this process, like IPC, and returns its address here.
  DeviceAddress Import(DeviceAddress address) {
    const SoftMachine::Lock lock(machine_.mutex_);
    return machine_.engine_.memory().Import(gpu_, address);
  }

  // Reads at once, as a kernel or the test. Returns false, with an error, if this process cannot
  // reach all of the memory.
  bool Read(DeviceAddress from, void* to, size_t bytes) {
    const SoftMachine::Lock lock(machine_.mutex_);
    const uint8_t* const found = Find(from, bytes, "Read");
    if (found == nullptr) return false;
    if (bytes > 0) std::memcpy(to, found, bytes);
    return true;
  }
  bool Write(DeviceAddress to, const void* from, size_t bytes) {
    const SoftMachine::Lock lock(machine_.mutex_);
    uint8_t* const found = Find(to, bytes, "Write");
    if (found == nullptr) return false;
    if (bytes > 0) std::memcpy(found, from, bytes);
    return true;
  }

 private:
  friend class SoftMachine;
  SoftDriver(SoftMachine& machine, size_t gpu) : machine_(machine), gpu_(gpu) {}

  bool Enqueue(Stream stream, const char* call, Work work) {
    Pause();
    const SoftMachine::Lock lock(machine_.mutex_);
    return EnqueueLocked(stream, call, std::move(work));
  }
  // The GPU as wait kernels see it. The machine holds its lock.
  struct KernelView {
    SoftDriver* driver;
    static uint32_t Load(const Flag* flag) { return flag->load(); }
    static void Store(Flag* flag, uint32_t value) { flag->store(value); }
    uint64_t Started(uint64_t /*address*/) const { return driver->started_; }
    void RaiseStarted(uint64_t /*address*/, uint64_t start) const {
      driver->started_ = std::max(driver->started_, start);
    }
    void CopyByKernel(DeviceAddress to, DeviceAddress from, uint64_t bytes) const {
      uint8_t* const there = driver->Find(to, bytes, "LaunchExchange");
      const uint8_t* const here = driver->Find(from, bytes, "LaunchExchange");
      if (there != nullptr && here != nullptr) std::memcpy(there, here, bytes);
    }
  };
  // The caller holds the lock.
  bool EnqueueLocked(Stream stream, const char* call, Work work) {
    if (!machine_.engine_.HasStream(gpu_, NumberOf(stream))) {
      Error(std::string(call) + ": stream " + std::to_string(NumberOf(stream)) +
            " is none of this driver's");
      return false;
    }
    machine_.engine_.Enqueue(NumberOf(stream), std::move(work));
    machine_.changed_.notify_all();
    return true;
  }
  void Error(const std::string& text) {
    machine_.engine_.errors().push_back("GPU " + std::to_string(gpu_) + ": " + text);
  }
  uint8_t* Find(DeviceAddress address, size_t bytes, const char* call) {
    std::string why;
    uint8_t* const found = machine_.engine_.memory().Find(gpu_, address, bytes, why);
    if (found == nullptr) {
      Error(std::string(call) + ": " + std::to_string(bytes) + " bytes at " + Hex(address) + ": " +
            why);
    }
    return found;
  }

  SoftMachine& machine_;
  const size_t gpu_;
  std::map<Event, std::shared_ptr<const Mark>> events_;  // null: never recorded
  std::set<Stream> other_priority_;
  std::function<void()> pause_;
  GroupStarts starts_;
  uint64_t started_ = 0;  // largest number of a group that has started
};

inline SoftDriver& SoftMachine::Open() {
  const Lock lock(mutex_);
  // make_unique cannot call the private constructor.
  drivers_.push_back(std::unique_ptr<SoftDriver>(new SoftDriver(*this, engine_.NewGpu())));
  return *drivers_.back();
}

}  // namespace nccltune::sendrecv
