// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/ended.h"

#include <algorithm>
#include <thread>

#include "sendrecv/watch.h"

namespace nccltune::sendrecv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kForReceivers = std::chrono::seconds(30);
constexpr auto kForReceiversAtExit = std::chrono::seconds(5);

bool Sent(const std::vector<std::shared_ptr<Communicator>>& communicators) {
  return std::ranges::any_of(communicators, [](const auto& each) { return each->HasSent(); });
}

void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

void Ended::Add(const std::shared_ptr<Communicator>& communicator) {
  if (communicator == nullptr) return;
  const std::scoped_lock lock(mutex_);
  ended_.push_back(communicator);
}

void Ended::GiveBack(std::chrono::milliseconds patience) {
  const auto began = Clock::now();
  while (!GiveBackOnce()) {
    const auto waited = Clock::now() - began;
    const bool more = patience.count() != 0 && waited < kForReceivers && HaveSent();
    if (waited >= patience && !more) return;
    Sleep();
  }
}

bool Ended::HaveSent() {
  const std::scoped_lock lock(mutex_);
  return Sent(ended_);
}

bool Ended::GiveBackOnce() {
  std::vector<std::shared_ptr<Communicator>> ended;
  {
    const std::scoped_lock lock(mutex_);
    ended.swap(ended_);
  }
  std::erase_if(ended, [](const auto& each) {
    if (!each->Close()) return false;
    Watcher::Get().Remove(each);
    return true;
  });
  const std::scoped_lock lock(mutex_);
  ended_.insert(ended_.end(), ended.begin(), ended.end());
  return ended.empty();
}

void WaitForReceivers() {
  const auto until = Clock::now() + kForReceiversAtExit;
  const auto all = Watcher::Get().All();
  while (Sent(all) && Clock::now() < until) Sleep();
}

}  // namespace nccltune::sendrecv
