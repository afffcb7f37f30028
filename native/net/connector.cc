// SPDX-License-Identifier: Apache-2.0
#include "net/connector.h"

#include <algorithm>
#include <iterator>

#include "common/text.h"
#include "common/token.h"
#include "net/clock.h"
#include "net/descriptors.h"

namespace nccltune::net {
namespace {

// Time limit of a connect with all its flows, the same as in NCCL's built-in socket transport.
constexpr int64_t kConnectionLimitNs = 60 * kNsPerSecond;
constexpr int64_t kRetryPauseNs = 200 * kNsPerMs;

uint64_t RandomNumber() {
  uint64_t number = 0;
  // Connection numbers must be unique. The flows of a second connection with the same number would
  // be taken for reconnecting flows.
  if (!RandomBytes(&number, sizeof(number))) number = static_cast<uint64_t>(NowNs());
  return number;
}

}  // namespace

size_t NicOfFlow(const std::vector<Nic>& nics, size_t flow) {
  // Each flow goes to the NIC that has the fewest flows relative to the NIC's speed.
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

Connector::Connector(const ConnectionContext& context, const Device& device,
                     const Invitation& invitation, std::shared_ptr<Pool> pool, int flows)
    : context_(context),
      device_(device.name),
      pool_(std::move(pool)),
      invitation_(invitation),
      begun_ns_(NowNs()),
      pause_ns_(kRetryPauseNs) {
  const int family = invitation.ends.front().storage.ss_family;
  std::ranges::copy_if(device.nics, std::back_inserter(nics_),
                       [&](const Nic& nic) { return nic.address.family() == family; });
  // If no NIC has an address of that family, use an empty Nic: the kernel then chooses the source
  // address.
  if (nics_.empty()) nics_.emplace_back();
  const size_t wanted = static_cast<size_t>(flows) + 1;
  const size_t granted = DescriptorShare(wanted, kFewestFlows);
  if (granted < wanted) ReportShortage(context_.log, "connect", 0);
  Start(granted);
}

// Starts `flows` flows, including the express flow, or fewer if file descriptors run out. Fails the
// connect if fewer than kFewestFlows can start.
void Connector::Start(size_t flows) {
  for (;;) {
    dialers_.clear();
    Hello hello;
    hello.token = invitation_.token;
    hello.connection = RandomNumber();
    hello.flows = static_cast<uint16_t>(flows);
    size_t open = 0;
    int shortage = 0;
    for (uint16_t flow = 0; flow < hello.flows; ++flow) {
      hello.flow = flow;
      const size_t nic = flow == 0 ? 0 : NicOfFlow(nics_, flow - 1U);
      const SocketEndpoint& end = invitation_.ends[nic % invitation_.ends.size()];
      Dialer& dialer = dialers_.emplace_back(nics_[nic], end, hello, context_.traffic_class,
                                             context_.settings.path_timeout_ms);
      dialer.Start(NowNs());
      if (dialer.shortage() != 0) shortage = dialer.shortage();
      if (shortage != 0) break;
      ++open;
    }
    retry_ns_.assign(dialers_.size(), 0);
    if (shortage == 0) return;
    // The flows can be started again: no hello has been sent yet, because Step sends the hellos.
    ReportShortage(context_.log, "connect", shortage);
    if (open < kFewestFlows) {
      Fail(abi::kSystemError, ShortageText("connect", shortage));
      return;
    }
    flows = open;
  }
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
    if (state == Dialer::State::kFewerFlowsOffered && dialer.offered() < dialers_.size()) {
      context_.log.Info("connect on " + device_ + " to " + dialer.peer().Name() + ": " +
                        dialer.reason() + ": " + std::to_string(dialer.offered()) + " of " +
                        std::to_string(dialers_.size()) + " TCP connections");
      Start(dialer.offered());
      return failed_ ? State::kFailed : State::kWorking;
    }
    const std::string reason = "to " + dialer.peer().Name() + ": " + dialer.reason();
    if (state == Dialer::State::kRejected || state == Dialer::State::kFewerFlowsOffered ||
        now - begun_ns_ > kConnectionLimitNs) {
      return Fail(abi::kRemoteError, reason);
    }
    if (dialer.shortage() != 0) {
      ReportShortage(context_.log, "connect", dialer.shortage());
    }
    if (retry_ns_[i] == 0) retry_ns_[i] = now + pause_ns_;
    if (now < retry_ns_[i]) continue;
    retry_ns_[i] = 0;
    dialer.Start(now);
  }
  return all ? State::kReady : State::kWorking;
}

Sender* Connector::Take() {
  for (Dialer& dialer : dialers_) dialer.ReconnectFromNowOn();
  auto sender = std::make_unique<Sender>(Sender::Resources{
      .context = context_, .pool = pool_, .dialers = std::move(dialers_), .device = device_});
  const int error = sender->Start();
  if (error == 0) return sender.release();
  Fail(abi::kSystemError, "epoll_ctl: " + ErrorWords(error));
  return nullptr;
}

void Connector::FailByException() noexcept {
  failed_ = true;
  reported_ = true;
  result_ = abi::kSystemError;
  dialers_.clear();
}

Connector::State Connector::Fail(abi::Result result, std::string reason) {
  failed_ = true;
  result_ = result;
  reason_ = std::move(reason);
  // The other sockets are not needed any more.
  dialers_.clear();
  return State::kFailed;
}

}  // namespace nccltune::net
