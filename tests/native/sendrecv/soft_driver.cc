// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_driver.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace nccltune::sendrecv {
namespace {

// Handles are numbers that are never reused, so that using an old one is detected.
uint64_t NumberOf(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }
void* HandleOf(uint64_t number) { return reinterpret_cast<void*>(number); }

// How often threads poll flags: a thread of the test may write one without notifying the machine.
constexpr std::chrono::milliseconds kLook(1);

}  // namespace

SoftDriver::SoftDriver(SoftMachine& machine, size_t context, int process, int gpu)
    : machine_(machine), context_(context), process_(process), gpu_(gpu) {}

void SoftDriver::Error(const std::string& text) {
  if (killed_) return;
  machine_.engine_.errors().push_back("GPU " + std::to_string(gpu_) + ", process " +
                                      std::to_string(process_) + ": " + text);
}

bool SoftDriver::Takes(Stream stream, const char* call) {
  const uint64_t number = NumberOf(stream);
  const std::string text = std::string(call) + ": stream " + std::to_string(number);
  if (!machine_.engine_.HasStream(context_, number)) {
    Error(text + " is none of this driver's");
    return false;
  }
  if (capturing_.contains(number)) {
    Error(text + " is under capture");
    return false;
  }
  return true;
}

bool SoftDriver::Refuses() {
  if (!refuse_after_) return false;
  if (*refuse_after_ > 0) {
    --*refuse_after_;
    return false;
  }
  refuse_after_.reset();
  return true;
}

void SoftDriver::RefuseAfter(size_t calls) {
  const SoftMachine::Lock lock(machine_.mutex_);
  refuse_after_ = calls;
}

void SoftDriver::Kill() {
  {
    const SoftMachine::Lock lock(machine_.mutex_);
    machine_.engine_.Kill(process_);
    for (const auto& driver : machine_.drivers_) driver->killed_ |= driver->process_ == process_;
  }
  machine_.changed_.notify_all();
}

bool SoftDriver::Enqueue(Stream stream, const char* call, Work work) {
  {
    const SoftMachine::Lock lock(machine_.mutex_);
    if (!Takes(stream, call)) return false;
    // RefuseAfter applies only to the kernels of the library.
    const auto* const kernel = std::get_if<work::Kernel>(&work);
    if ((kernel == nullptr || kernel->start) && Refuses()) return false;
    machine_.engine_.Enqueue(NumberOf(stream), std::move(work));
  }
  machine_.changed_.notify_all();
  return true;
}

Stream SoftDriver::NewStream() {
  const SoftMachine::Lock lock(machine_.mutex_);
  return HandleOf(machine_.engine_.NewStream(context_));
}

void SoftDriver::DeleteStream(Stream stream) {
  const SoftMachine::Lock lock(machine_.mutex_);
  if (!Takes(stream, "DeleteStream")) return;
  machine_.engine_.DeleteStream(NumberOf(stream));
}

Event SoftDriver::NewEvent() {
  const SoftMachine::Lock lock(machine_.mutex_);
  events_[++machine_.events_] = nullptr;
  return HandleOf(machine_.events_);
}

void SoftDriver::DeleteEvent(Event event) {
  const SoftMachine::Lock lock(machine_.mutex_);
  if (events_.erase(NumberOf(event)) == 0) {
    Error("DeleteEvent: event " + std::to_string(NumberOf(event)) + " is none of this driver's");
  }
}

bool SoftDriver::Record(Event event, Stream stream) {
  {
    const SoftMachine::Lock lock(machine_.mutex_);
    if (!Takes(stream, "Record") || Refuses()) return false;
    const auto found = events_.find(NumberOf(event));
    if (found == events_.end()) {
      Error("Record: event " + std::to_string(NumberOf(event)) + " is none of this driver's");
      return false;
    }
    auto mark = std::make_shared<Mark>(Mark{.stream = NumberOf(stream)});
    found->second = mark;
    machine_.engine_.Enqueue(NumberOf(stream), work::Record{std::move(mark)});
  }
  machine_.changed_.notify_all();
  return true;
}

bool SoftDriver::WaitEvent(Stream stream, Event event) {
  {
    const SoftMachine::Lock lock(machine_.mutex_);
    if (!Takes(stream, "WaitEvent") || Refuses()) return false;
    for (const auto& driver : machine_.drivers_) {
      const auto found = driver->events_.find(NumberOf(event));
      if (driver->process_ != process_ || found == driver->events_.end()) continue;
      // An event that was never recorded counts as complete, as in CUDA.
      if (found->second == nullptr) return true;
      machine_.engine_.Enqueue(NumberOf(stream), work::WaitEvent{found->second});
      machine_.changed_.notify_all();
      return true;
    }
    Error("WaitEvent: event " + std::to_string(NumberOf(event)) + " is none of this process's");
  }
  return false;
}

bool SoftDriver::Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) {
  return Enqueue(stream, "Copy", work::Copy{.to = to, .from = from, .bytes = bytes});
}

bool SoftDriver::WriteValue(Stream stream, Flag& flag, uint32_t value) {
  return Enqueue(stream, "WriteValue", work::WriteValue{.flag = &flag, .value = value});
}

bool SoftDriver::WaitValue(Stream stream, Flag& flag, uint32_t value) {
  return Enqueue(stream, "WaitValue", work::WaitValue{.flag = &flag, .value = value});
}

bool SoftDriver::Kernel(Stream stream, std::function<void()> body, std::function<bool()> until) {
  return Enqueue(stream, "Kernel",
                 work::Kernel{.body = std::move(body), .until = std::move(until)});
}

bool SoftDriver::Capturing(Stream stream) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return capturing_.contains(NumberOf(stream));
}

bool SoftDriver::LaunchGate(Stream stream, const GateKernel& gate) {
  struct State {
    uint64_t reached = 0;  // the step at which the group had started
    uint64_t held_up = 0;  // since when it holds up a later group
  };
  const auto state = std::make_shared<State>();
  const auto gives_way = [this, gate, state] {
    const uint64_t held_up =
        state->held_up == 0 ? work::kNever : state->held_up + gate.limits.held_up_ns;
    return std::min(held_up, state->reached + gate.limits.alone_ns);
  };
  work::Kernel kernel;
  kernel.start = [] {};
  kernel.until = [this, gate, state, gives_way] {
    const uint64_t now = machine_.engine_.now();
    if (!Reached(gate.begun->load(), gate.begun_value)) return false;
    if (state->reached == 0) state->reached = now;
    if (Reached(gate.ready->load(), gate.value)) return true;
    if (state->held_up == 0 && started_ > gate.start) state->held_up = now;
    if (now < gives_way()) return false;
    if (state->held_up != 0 && now >= state->held_up + gate.limits.held_up_ns) {
      gate.held_up->store(1);
    }
    gate.late->store(gate.value);
    return true;
  };
  kernel.wake = [state, gives_way] { return state->reached == 0 ? work::kNever : gives_way(); };
  return Enqueue(stream, "LaunchGate", std::move(kernel));
}

bool SoftDriver::CopyByKernel(const ExchangeKernel::Pull& pull) {
  uint8_t* const to = Find(pull.to, pull.bytes, "LaunchExchange");
  const uint8_t* const from = Find(pull.from, pull.bytes, "LaunchExchange");
  if (to == nullptr || from == nullptr) return false;
  std::memcpy(to, from, pull.bytes);
  return true;
}

bool SoftDriver::LaunchExchange(Stream stream, const ExchangeKernel& exchange) {
  const auto left = std::make_shared<ExchangeKernel>(exchange);
  const auto reached = [](const ExchangeKernel::Value& value) {
    return value.flag == nullptr || Reached(value.flag->load(), value.value);
  };
  const auto done = [this](ExchangeKernel::Pull& pull) {
    if (pull.copied == nullptr) return true;
    if (!Reached(pull.copied->load(), pull.value)) return false;
    if (pull.late->load() == pull.value) {
      const uint32_t ready = pull.ready->load();
      if (!Reached(ready, pull.value)) return false;
      if (ready - pull.value < kReleased) CopyByKernel(pull);
    }
    pull.done->store(pull.value);
    pull = {};
    return true;
  };
  work::Kernel kernel;
  kernel.start = [this, left] {
    started_ = std::max(started_, left->start);
    for (uint32_t i = 0; i < left->raise_count; ++i) {
      left->raises[i].flag->store(left->raises[i].value);
    }
  };
  kernel.until = [left, reached, done] {
    bool all = true;
    for (uint32_t i = 0; i < left->pull_count; ++i) all &= done(left->pulls[i]);
    for (uint32_t i = 0; i < left->wait_count; ++i) all &= reached(left->waits[i]);
    if (all && left->collected_count != 0) left->collected.flag->store(left->collected.value);
    return all;
  };
  return Enqueue(stream, "LaunchExchange", std::move(kernel));
}

bool SoftDriver::IsComplete(Stream stream) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.Idle(NumberOf(stream));
}

bool SoftDriver::HasDefaultPriority(Stream stream) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return !other_priority_.contains(NumberOf(stream));
}

void SoftDriver::SetOtherPriority(Stream stream) {
  const SoftMachine::Lock lock(machine_.mutex_);
  other_priority_.insert(NumberOf(stream));
}

void SoftDriver::SetCapturing(Stream stream, bool capturing) {
  const SoftMachine::Lock lock(machine_.mutex_);
  if (capturing) {
    capturing_.insert(NumberOf(stream));
  } else {
    capturing_.erase(NumberOf(stream));
  }
}

bool SoftDriver::Synchronize(Stream stream, std::chrono::milliseconds limit) {
  return machine_.Synchronize(NumberOf(stream), limit);
}

DeviceAddress SoftDriver::Allocate(size_t bytes) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.memory().Allocate(process_, gpu_, bytes);
}

bool SoftDriver::AllocateAt(DeviceAddress at, size_t bytes) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.memory().AllocateAt(process_, gpu_, at, bytes);
}

void SoftDriver::Free(DeviceAddress address) {
  const SoftMachine::Lock lock(machine_.mutex_);
  if (!machine_.engine_.memory().Free(process_, address)) {
    Error("Free: no allocation of this process starts at " + Hex(address));
  }
}

DeviceAddress SoftDriver::Import(const SoftDriver& owner, DeviceAddress address) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.memory().Import(process_, owner.process_, address);
}

void SoftDriver::Unmap(DeviceAddress start) {
  const SoftMachine::Lock lock(machine_.mutex_);
  if (!machine_.engine_.memory().Unmap(process_, start)) {
    Error("Unmap: no import of this process starts at " + Hex(start));
  }
}

uint8_t* SoftDriver::Find(DeviceAddress address, size_t bytes, const char* call) {
  std::string why;
  uint8_t* const found = machine_.engine_.memory().Find(process_, address, bytes, why);
  if (found == nullptr) {
    Error(std::string(call) + ": " + std::to_string(bytes) + " bytes at " + Hex(address) + ": " +
          why);
  }
  return found;
}

bool SoftDriver::Read(DeviceAddress from, void* to, size_t bytes) {
  const SoftMachine::Lock lock(machine_.mutex_);
  const uint8_t* const found = Find(from, bytes, "Read");
  if (found == nullptr) return false;
  if (bytes > 0) std::memcpy(to, found, bytes);
  return true;
}

bool SoftDriver::Write(DeviceAddress to, const void* from, size_t bytes) {
  const SoftMachine::Lock lock(machine_.mutex_);
  uint8_t* const found = Find(to, bytes, "Write");
  if (found == nullptr) return false;
  if (bytes > 0) std::memcpy(found, from, bytes);
  return true;
}

SoftMachine::SoftMachine(const SoftOptions& options)
    : options_(options), engine_(options.gpus, options.delay_bits), own_random_(options.seed) {}

SoftMachine::~SoftMachine() {
  {
    const Lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

SoftDriver& SoftMachine::OpenAs(int process, int gpu) {
  if (options_.one_connection) {
    engine_.NewSharedContext(process, gpu);
  } else {
    engine_.NewContext(process, gpu, options_.hardware_queues);
  }
  // make_unique cannot call the private constructor.
  drivers_.push_back(
      std::unique_ptr<SoftDriver>(new SoftDriver(*this, drivers_.size(), process, gpu)));
  return *drivers_.back();
}

SoftDriver& SoftMachine::Open(int gpu) {
  const Lock lock(mutex_);
  return OpenAs(processes_++, gpu);
}

SoftDriver& SoftMachine::Open(int gpu, const SoftDriver& beside) {
  const Lock lock(mutex_);
  return OpenAs(beside.process_, gpu);
}

bool SoftMachine::StepLocked(Lock& lock, Random& random) {
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

bool SoftMachine::Step(Random& random) {
  Lock lock(mutex_);
  return StepLocked(lock, random);
}

bool SoftMachine::Run(Random& random) {
  Lock lock(mutex_);
  while (StepLocked(lock, random)) {
  }
  return engine_.Idle();
}

void SoftMachine::Start(int threads) {
  const Lock lock(mutex_);
  for (int i = 0; i < threads; ++i) {
    const uint64_t seed = options_.seed + threads_.size() + 1;
    threads_.emplace_back([this, seed] { Serve(seed); });
  }
}

void SoftMachine::Serve(uint64_t seed) {
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

SoftMachine::Host::Host(SoftMachine& machine) : machine_(machine) {
  const Lock lock(machine_.mutex_);
  machine_.hosts_.insert(std::this_thread::get_id());
}

SoftMachine::Host::~Host() {
  {
    const Lock lock(machine_.mutex_);
    machine_.hosts_.erase(std::this_thread::get_id());
  }
  machine_.changed_.notify_all();
}

void SoftMachine::RunHosts(int count, const std::function<void(int)>& run) {
  {
    const Lock lock(mutex_);
    hosts_to_come_ += static_cast<size_t>(count);
  }
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([this, &run, i] {
      const Host host(*this);
      {
        const Lock lock(mutex_);
        --hosts_to_come_;
      }
      run(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

bool SoftMachine::StuckLocked() const {
  return hosts_.empty() && hosts_to_come_ == 0 && !engine_.Idle() && !engine_.Moves();
}

std::vector<Waiting> SoftMachine::Stuck() {
  const Lock lock(mutex_);
  // The asking thread itself does not count: it only waits.
  const size_t others = hosts_.size() + hosts_to_come_ - hosts_.count(std::this_thread::get_id());
  return others > 0 ? std::vector<Waiting>() : engine_.Blocked();
}

bool SoftMachine::Synchronize(uint64_t stream, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Lock lock(mutex_);
  const bool host = hosts_.erase(std::this_thread::get_id()) > 0;
  changed_.notify_all();
  while (!engine_.Idle(stream) && std::chrono::steady_clock::now() < deadline) {
    if (threads_.empty() && StepLocked(lock, own_random_)) continue;
    if (StuckLocked()) break;
    changed_.wait_for(lock, kLook);
  }
  if (host) hosts_.insert(std::this_thread::get_id());
  return engine_.Idle(stream);
}

std::vector<std::string> SoftMachine::Errors() {
  const Lock lock(mutex_);
  return engine_.errors();
}

void SoftMachine::Name(const void* what, std::string name) {
  const Lock lock(mutex_);
  engine_.Name(what, std::move(name));
}

}  // namespace nccltune::sendrecv
