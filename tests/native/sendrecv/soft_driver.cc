// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_driver.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

// Handles are numbers that are never reused, so that using an old one is detected.
uint64_t NumberOf(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }
void* HandleOf(uint64_t number) { return reinterpret_cast<void*>(number); }

// How often threads poll flags: a thread of the test may write one without notifying the machine.
constexpr std::chrono::milliseconds kLook(1);

}  // namespace

void SoftDriver::Error(const std::string& text) {
  machine_.engine_.errors().push_back("GPU " + std::to_string(gpu_) + ": " + text);
}

bool SoftDriver::EnqueueLocked(Stream stream, const char* call, Work work) {
  if (!machine_.engine_.HasStream(gpu_, NumberOf(stream))) {
    Error(std::string(call) + ": stream " + std::to_string(NumberOf(stream)) +
          " is none of this driver's");
    return false;
  }
  machine_.engine_.Enqueue(NumberOf(stream), std::move(work));
  machine_.changed_.notify_all();
  return true;
}

bool SoftDriver::Enqueue(Stream stream, const char* call, Work work) {
  Pause();
  const SoftMachine::Lock lock(machine_.mutex_);
  return EnqueueLocked(stream, call, std::move(work));
}

Stream SoftDriver::NewStream() {
  const SoftMachine::Lock lock(machine_.mutex_);
  return HandleOf(machine_.engine_.NewStream(gpu_));
}

Event SoftDriver::NewEvent() {
  const SoftMachine::Lock lock(machine_.mutex_);
  return events_.emplace(HandleOf(events_.size() + 1), nullptr).first->first;
}

bool SoftDriver::Record(Event event, Stream stream) {
  Pause();
  const SoftMachine::Lock lock(machine_.mutex_);
  auto mark = std::make_shared<Mark>(Mark{.stream = NumberOf(stream)});
  events_.at(event) = mark;
  return EnqueueLocked(stream, "Record", work::Record{std::move(mark)});
}

bool SoftDriver::WaitEvent(Stream stream, Event event) {
  Pause();
  const SoftMachine::Lock lock(machine_.mutex_);
  // An event that was never recorded counts as complete, as in CUDA.
  const std::shared_ptr<const Mark>& mark = events_.at(event);
  return mark == nullptr || EnqueueLocked(stream, "WaitEvent", work::WaitEvent{mark});
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
  const SoftMachine::Lock lock(machine_.mutex_);
  return EnqueueLocked(stream, "Kernel",
                       work::Kernel{.body = std::move(body), .until = std::move(until)});
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
  Pause();
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.Idle(NumberOf(stream));
}

DeviceAddress SoftDriver::Allocate(size_t bytes) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.memory().Allocate(gpu_, bytes);
}

DeviceAddress SoftDriver::Import(DeviceAddress address) {
  const SoftMachine::Lock lock(machine_.mutex_);
  return machine_.engine_.memory().Import(gpu_, address);
}

uint8_t* SoftDriver::Find(DeviceAddress address, size_t bytes, const char* call) {
  std::string why;
  uint8_t* const found = machine_.engine_.memory().Find(gpu_, address, bytes, why);
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

SoftMachine::~SoftMachine() {
  {
    const Lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

SoftDriver& SoftMachine::Open() {
  const Lock lock(mutex_);
  // make_unique cannot call the private constructor.
  drivers_.push_back(std::unique_ptr<SoftDriver>(new SoftDriver(*this, engine_.NewGpu())));
  return *drivers_.back();
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

void SoftMachine::Start(int threads, uint64_t seed) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, seed, i] { Serve(seed + static_cast<uint64_t>(i) + 1); });
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

bool SoftMachine::Finish() {
  Lock lock(mutex_);
  while (!engine_.Idle() && engine_.Moves()) changed_.wait_for(lock, kLook);
  return engine_.Idle();
}

std::vector<std::string> SoftMachine::Stuck() {
  const Lock lock(mutex_);
  return engine_.Blocked();
}

std::vector<std::string> SoftMachine::Errors() {
  const Lock lock(mutex_);
  return engine_.errors();
}

void SoftMachine::Name(Stream stream, std::string name) {
  const Lock lock(mutex_);
  engine_.Name(NumberOf(stream), std::move(name));
}

}  // namespace nccltune::sendrecv
