// SPDX-License-Identifier: Apache-2.0
#include "net/connector.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "net/clock.h"

namespace nccltune::net {
namespace {

// As long as NCCL's own transport tries.
constexpr int64_t kTryNs = 60 * kNsPerSecond;
constexpr int64_t kPauseNs = 200 * kNsPerMs;
// A flow that comes back is welcomed by the peer's worker, at once.
constexpr int64_t kWelcomeAgainNs = 10 * kNsPerSecond;

uint64_t RandomNumber() {
  uint64_t number = 0;
  // Of two connections with one number the second would be taken for flows that come back.
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    number = static_cast<uint64_t>(NowNs());
  }
  return number;
}

}  // namespace

size_t NicOfFlow(const std::vector<Nic>& nics, size_t flow) {
  // The NIC that is furthest behind its share, over and over.
  std::vector<double> given(nics.size(), 0);
  size_t best = 0;
  for (size_t i = 0; i <= flow; ++i) {
    for (size_t n = 0; n < nics.size(); ++n) {
      const auto speed = [&](size_t at) { return std::max(nics[at].speed_mbps, 1); };
      if ((given[n] + 1) / speed(n) < (given[best] + 1) / speed(best)) best = n;
    }
    given[best] += 1;
  }
  return best;
}

Connector::Connector(const Surroundings& surroundings, const Device& device,
                     const Invitation& invitation, std::shared_ptr<Pool> pool, int flows)
    : surroundings_(surroundings),
      device_(device.name),
      pool_(std::move(pool)),
      begun_ns_(NowNs()),
      pause_ns_(kPauseNs) {
  const int family = invitation.ends.front().storage.ss_family;
  std::vector<Nic> nics;
  std::ranges::copy_if(device.nics, std::back_inserter(nics),
                       [&](const Nic& nic) { return nic.address.family() == family; });
  // Without an address of that family the kernel chooses.
  if (nics.empty()) nics.emplace_back();
  Hello hello;
  hello.token = invitation.token;
  hello.connection = RandomNumber();
  hello.flows = static_cast<uint16_t>(flows + 1);
  for (uint16_t flow = 0; flow < hello.flows; ++flow) {
    hello.flow = flow;
    const size_t nic = flow == 0 ? 0 : NicOfFlow(nics, flow - 1U);
    const Endpoint& end = invitation.ends[nic % invitation.ends.size()];
    dialers_.emplace_back(nics[nic], end, hello, surroundings.traffic_class);
    dialers_.back().Start(begun_ns_);
  }
  again_ns_.assign(dialers_.size(), 0);
}

Connector::State Connector::Step() {
  if (failed_) return State::kFailed;
  const int64_t now = NowNs();
  bool all = true;
  for (size_t i = 0; i < dialers_.size(); ++i) {
    Dialer& dialer = dialers_[i];
    const Dialer::State state = dialer.Step(now);
    if (state == Dialer::State::kReady) continue;
    all = false;
    if (state == Dialer::State::kWorking) continue;
    reason_ = "to " + dialer.peer().Name() + ": " + dialer.reason();
    failed_ = state == Dialer::State::kNever || now - begun_ns_ > kTryNs;
    if (failed_) {
      // The others' sockets are of no use any more.
      dialers_.clear();
      return State::kFailed;
    }
    if (again_ns_[i] == 0) again_ns_[i] = now + pause_ns_;
    if (now < again_ns_[i]) continue;
    again_ns_[i] = 0;
    dialer.Start(now);
  }
  return all ? State::kReady : State::kWorking;
}

Sender* Connector::Take() {
  for (Dialer& dialer : dialers_) dialer.set_welcome_limit(kWelcomeAgainNs);
  return new Sender({.surroundings = surroundings_,
                     .pool = pool_,
                     .dialers = std::move(dialers_),
                     .device = device_});
}

}  // namespace nccltune::net
