// SPDX-License-Identifier: Apache-2.0
#include "host/net/host_process.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "host/net/net_plugin.h"

namespace nccltune::host::net {
namespace {

constexpr int kPollMs = 200;
constexpr int kShortPollMs = 5;
constexpr int kFailureExchangeMs = 2000;

// A thread that Run started, and the time since which it has been in its current plugin call.
struct Watched {
  CallSlot slot;
  std::thread thread;
  uint64_t seen_calls = 0;
  int64_t since_ns = 0;
};

}  // namespace

HostProcess::HostProcess(const NetCheckOptions& options, int rank, std::unique_ptr<PeerLink> link,
                         pid_t peer)
    : options_(options), rank_(rank), link_(std::move(link)), peer_(peer) {}

bool HostProcess::Fail(std::string text) {
  first_failure_.Fail("rank " + std::to_string(rank_) + ": " + std::move(text));
  stopped_.store(true, std::memory_order_release);
  return false;
}

bool HostProcess::ExpectsLoss() {
  if (peer_killed()) return true;
  if (!options_.close_in_flight) return false;
  // The peer's kClosing message uses another connection and may arrive after the plugin has noticed
  // the close.
  for (int i = 0; i < kFailureExchangeMs && !peer_closing(); ++i) poll(nullptr, 0, 1);
  return peer_closing();
}

bool HostProcess::PluginError(const std::string& where, const char* call, abi::Result result) {
  if (!ExpectsLoss()) return Fail(where + ": " + call + " returned " + ResultName(result));
  if (!loss_) loss_ = PeerLossError{call, ResultName(result), NowNs()};
  stopped_.store(true, std::memory_order_release);
  return false;
}

void HostProcess::ReceiveFromPeer() {
  while (const std::optional<std::string> failure = link_->Take(PeerMessage::kFailure)) {
    int64_t at_ns = 0;
    std::memcpy(&at_ns, failure->data(), std::min(sizeof at_ns, failure->size()));
    first_failure_.Adopt(failure->substr(std::min(sizeof at_ns, failure->size())), at_ns);
    peer_failed_ = true;
    stopped_.store(true, std::memory_order_release);
  }
  for (const PeerMessage type : {PeerMessage::kTotals, PeerMessage::kTotalsTaken}) {
    while (std::optional<std::string> text = link_->Take(type)) {
      const std::lock_guard<std::mutex> lock(mail_mutex_);
      inbox_.emplace_back(type, std::move(*text));
    }
  }
  if (link_->Has(PeerMessage::kClosing)) peer_closing_.store(true, std::memory_order_release);
  // If this test killed the peer, do not stop here, because the plugin must report the error.
  if (link_->ended() && !peer_killed()) stopped_.store(true, std::memory_order_release);
}

void HostProcess::Post(PeerMessage type, std::string text) {
  {
    const std::lock_guard<std::mutex> lock(mail_mutex_);
    outbox_.emplace_back(type, std::move(text));
  }
  wake_.Set();
}

bool HostProcess::Received(PeerMessage type, std::string* text) {
  const std::lock_guard<std::mutex> lock(mail_mutex_);
  const auto found = std::find_if(inbox_.begin(), inbox_.end(),
                                  [type](const auto& message) { return message.first == type; });
  if (found == inbox_.end()) return false;
  *text = std::move(found->second);
  inbox_.erase(found);
  return true;
}

void HostProcess::SendPosted() {
  const std::lock_guard<std::mutex> lock(mail_mutex_);
  for (const auto& [type, text] : outbox_) Send(type, text);
  outbox_.clear();
}

bool HostProcess::Run(const std::vector<std::function<void()>>& parts) {
  return RunWatched(parts, 0);
}

bool HostProcess::RunAndKill(const std::vector<std::function<void()>>& parts) {
  const bool kills = rank_ == 0 && options_.kill_after_ms >= 0;
  const int64_t kill_at_ns = kills ? NowNs() + kMs * options_.kill_after_ms : 0;
  if (!RunWatched(parts, kill_at_ns)) return false;
  return !kills || peer_killed() || Fail("the run ended before rank 1 was due to be killed");
}

bool HostProcess::RunWatched(const std::vector<std::function<void()>>& parts, int64_t kill_at_ns) {
  std::atomic<size_t> running{parts.size()};
  std::vector<Watched> threads(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    threads[i].thread = std::thread([&, i] {
      this_threads_slot = &threads[i].slot;
      parts[i]();
      this_threads_slot = nullptr;
      if (running.fetch_sub(1) == 1) wake_.Set();
    });
  }
  while (running.load() > 0) {
    link_->Poll(kill_at_ns != 0 ? kShortPollMs : kPollMs, wake_.fd());
    wake_.Clear();
    SendPosted();
    ReceiveFromPeer();
    const int64_t now = NowNs();
    if (kill_at_ns != 0 && now >= kill_at_ns && !peer_killed()) {
      killed_at_ns_.store(now, std::memory_order_release);
      kill(peer_, SIGKILL);
    }
    // A closed link is always readable, so Poll does not wait. Wait here instead.
    if (link_->ended() && running.load() > 0) poll(nullptr, 0, kShortPollMs);
    for (Watched& watched : threads) {
      const char* const name = watched.slot.name.load(std::memory_order_relaxed);
      const uint64_t calls = watched.slot.calls.load(std::memory_order_relaxed);
      if (name == nullptr || calls != watched.seen_calls || watched.since_ns == 0) {
        watched.seen_calls = calls;
        watched.since_ns = now;
      } else if (now - watched.since_ns > kSecond * options_.timeout_s) {
        Fail(std::string(name) + " has not returned for " + std::to_string(options_.timeout_s) +
             " s");
        // The hanging thread cannot be ended, so nothing it uses may be destroyed.
        for (Watched& left : threads) left.thread.detach();
        _exit(Finish());
      }
    }
  }
  for (Watched& watched : threads) watched.thread.join();
  SendPosted();
  return first_failure_.ok() && (!link_->ended() || peer_killed());
}

void HostProcess::StartRound() {
  while (link_->Take(PeerMessage::kClosing)) {
  }
  peer_closing_.store(false, std::memory_order_release);
  stopped_.store(false, std::memory_order_release);
  loss_.reset();
}

bool HostProcess::Await(PeerMessage type, std::string* text) {
  for (;;) {
    if (std::optional<std::string> taken = link_->Take(type)) {
      *text = std::move(*taken);
      return true;
    }
    if (!first_failure_.ok() || link_->ended()) return false;
    link_->Poll(kPollMs);
    ReceiveFromPeer();
  }
}

bool HostProcess::Barrier() {
  if (!first_failure_.ok()) return false;
  Send(PeerMessage::kBarrier, {});
  std::string text;
  return Await(PeerMessage::kBarrier, &text);
}

int HostProcess::Finish() {
  // Neither process has recorded a failure, so the other process has exited unexpectedly.
  if (first_failure_.ok()) return kPeerVanished;
  const int64_t at_ns = first_failure_.at_ns();
  std::string failure(sizeof at_ns, '\0');
  std::memcpy(failure.data(), &at_ns, sizeof at_ns);
  Send(PeerMessage::kFailure, failure + first_failure_.text());
  if (rank_ == 0 && !peer_killed()) {
    // An error here may be caused by an earlier error in the other process, which must then be
    // reported instead. The other process always answers, at least with the failure that was just
    // sent.
    const int64_t until = NowNs() + kMs * kFailureExchangeMs;
    while (!peer_failed_ && !link_->ended() && NowNs() < until) {
      link_->Poll(kPollMs);
      ReceiveFromPeer();
    }
    if (link_->ended() && !peer_failed_ && options_.fork) return kPeerVanished;
  }
  if (rank_ == 0 || !options_.fork) {
    std::fprintf(stderr, "error: %s\n", first_failure_.text().c_str());
  }
  return kFailed;
}

}  // namespace nccltune::host::net
