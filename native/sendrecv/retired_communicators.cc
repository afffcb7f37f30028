// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/retired_communicators.h"

#include <algorithm>
#include <thread>

#include "sendrecv/watch.h"

namespace nccltune::sendrecv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kReceiverWait = std::chrono::seconds(30);
constexpr auto kReceiverWaitAtExit = std::chrono::seconds(5);

bool AnyUnreceivedSends(const std::vector<std::shared_ptr<Communicator>>& communicators) {
  return std::ranges::any_of(communicators,
                             [](const auto& each) { return each->HasUnreceivedSends(); });
}

void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

void RetiredCommunicators::Add(const std::shared_ptr<Communicator>& communicator) {
  if (communicator == nullptr) return;
  const std::scoped_lock lock(mutex_);
  retired_.push_back(communicator);
}

void RetiredCommunicators::Release(std::chrono::milliseconds patience) {
  const auto began = Clock::now();
  while (!ReleaseOnce()) {
    const auto waited = Clock::now() - began;
    const bool more = patience.count() != 0 && waited < kReceiverWait && HaveUnreceivedSends();
    if (waited >= patience && !more) return;
    Sleep();
  }
}

bool RetiredCommunicators::HaveUnreceivedSends() {
  const std::scoped_lock lock(mutex_);
  return AnyUnreceivedSends(retired_);
}

bool RetiredCommunicators::ReleaseOnce() {
  std::vector<std::shared_ptr<Communicator>> retired;
  {
    const std::scoped_lock lock(mutex_);
    retired.swap(retired_);
  }
  std::erase_if(retired, [](const auto& each) {
    if (!each->Close()) return false;
    Watcher::Get().Remove(each);
    return true;
  });
  const std::scoped_lock lock(mutex_);
  retired_.insert(retired_.end(), retired.begin(), retired.end());
  return retired.empty();
}

void WaitForReceivers() {
  const auto until = Clock::now() + kReceiverWaitAtExit;
  const auto all = Watcher::Get().All();
  while (AnyUnreceivedSends(all) && Clock::now() < until) Sleep();
}

}  // namespace nccltune::sendrecv
