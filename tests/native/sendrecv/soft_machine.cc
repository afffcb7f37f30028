// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {
namespace {

// How often threads poll flags: a thread of the test may write one without notifying the machine.
constexpr std::chrono::milliseconds kLook(1);

}  // namespace

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
