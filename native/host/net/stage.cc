// SPDX-License-Identifier: Apache-2.0
#include "host/net/stage.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "host/net/call_watch.h"
#include "host/net/net_plugin.h"

namespace nccltune::host::net {
namespace {

constexpr int kLookMs = 200;
constexpr int kDisturbLookMs = 5;
constexpr int kLastWordMs = 2000;

// A part's thread, and what is known of the call that it is in.
struct Watched {
  CallSlot slot;
  std::thread thread;
  uint64_t seen_calls = 0;
  int64_t since_ns = 0;
};

}  // namespace

Stage::Stage(const Options& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer)
    : options_(options), rank_(rank), link_(std::move(link)), peer_(peer) {}

bool Stage::Fail(std::string text) {
  verdict_.Fail("rank " + std::to_string(rank_) + ": " + std::move(text));
  stopped_.store(true, std::memory_order_release);
  return false;
}

bool Stage::ExpectsLoss() {
  if (peer_disturbed()) return true;
  if (!options_.close_in_flight) return false;
  // The announcement takes another way than the connection's end, and may be the later one.
  for (int i = 0; i < kLastWordMs && !peer_closing(); ++i) poll(nullptr, 0, 1);
  return peer_closing();
}

bool Stage::PluginError(const std::string& where, const char* call, abi::Result result) {
  if (!ExpectsLoss()) return Fail(where + ": " + call + " returned " + ResultName(result));
  if (!loss_) loss_ = Loss{call, ResultName(result), NowNs()};
  stopped_.store(true, std::memory_order_release);
  return false;
}

void Stage::HearPeer() {
  while (const std::optional<std::string> failure = link_->Take(Word::kFailure)) {
    int64_t at_ns = 0;
    std::memcpy(&at_ns, failure->data(), std::min(sizeof at_ns, failure->size()));
    verdict_.Adopt(failure->substr(std::min(sizeof at_ns, failure->size())), at_ns);
    failed_there_ = true;
    stopped_.store(true, std::memory_order_release);
  }
  for (const Word word : {Word::kTotals, Word::kTotalsTaken}) {
    while (std::optional<std::string> text = link_->Take(word)) {
      const std::lock_guard<std::mutex> lock(mail_mutex_);
      inbox_.emplace_back(word, std::move(*text));
    }
  }
  if (link_->Has(Word::kClosing)) peer_closing_.store(true, std::memory_order_release);
  // Where the other process is killed, its plugin's word is waited for.
  if (link_->ended() && !peer_disturbed()) stopped_.store(true, std::memory_order_release);
}

void Stage::Post(Word word, std::string text) {
  {
    const std::lock_guard<std::mutex> lock(mail_mutex_);
    outbox_.emplace_back(word, std::move(text));
  }
  wake_.Set();
}

bool Stage::Received(Word word, std::string* text) {
  const std::lock_guard<std::mutex> lock(mail_mutex_);
  const auto found = std::find_if(inbox_.begin(), inbox_.end(),
                                  [word](const auto& message) { return message.first == word; });
  if (found == inbox_.end()) return false;
  *text = std::move(found->second);
  inbox_.erase(found);
  return true;
}

void Stage::SayPosted() {
  const std::lock_guard<std::mutex> lock(mail_mutex_);
  for (const auto& [word, text] : outbox_) Say(word, text);
  outbox_.clear();
}

void Stage::Disturb(int64_t now_ns) {
  const auto due = [&](int after_ms) {
    return after_ms >= 0 && now_ns - disturbing_since_ns_ >= kMs * after_ms;
  };
  if (options_.kill_after_ms >= 0) {
    if (disturbances_ == 0 && due(options_.kill_after_ms)) {
      disturbed_at_ns_.store(NowNs(), std::memory_order_release);
      kill(peer_, SIGKILL);
      ++disturbances_;
    }
    return;
  }
  const bool for_good = options_.continue_after_ms < 0;
  if (disturbances_ == 0 && due(options_.stop_after_ms)) {
    if (for_good) disturbed_at_ns_.store(NowNs(), std::memory_order_release);
    kill(peer_, SIGSTOP);
    ++disturbances_;
  }
  if (disturbances_ == 1 && !for_good && due(options_.stop_after_ms + options_.continue_after_ms)) {
    kill(peer_, SIGCONT);
    ++disturbances_;
  }
}

bool Stage::Run(const std::vector<std::function<void()>>& parts) {
  return RunWatched(parts, false);
}

bool Stage::RunDisturbed(const std::vector<std::function<void()>>& parts) {
  const bool disturb = rank_ == 0 && (options_.kill_after_ms >= 0 || options_.stop_after_ms >= 0);
  disturbing_since_ns_ = NowNs();
  if (!RunWatched(parts, disturb)) return false;
  const int wanted = options_.continue_after_ms >= 0 ? 2 : 1;
  if (disturb && disturbances_ < wanted) {
    kill(peer_, SIGCONT);
    return Fail("all was over before rank 1 was to be killed, stopped or continued");
  }
  return true;
}

bool Stage::RunWatched(const std::vector<std::function<void()>>& parts, bool disturb) {
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
    link_->Listen(disturb ? kDisturbLookMs : kLookMs, wake_.fd());
    wake_.Clear();
    SayPosted();
    HearPeer();
    const int64_t now = NowNs();
    if (disturb) Disturb(now);
    // A link that ended is always readable.
    if (link_->ended() && running.load() > 0) poll(nullptr, 0, kDisturbLookMs);
    for (Watched& watched : threads) {
      const char* const name = watched.slot.name.load(std::memory_order_relaxed);
      const uint64_t calls = watched.slot.calls.load(std::memory_order_relaxed);
      if (name == nullptr || calls != watched.seen_calls || watched.since_ns == 0) {
        watched.seen_calls = calls;
        watched.since_ns = now;
      } else if (now - watched.since_ns > kSecond * options_.timeout_s) {
        Fail(std::string(name) + " has not returned for " + std::to_string(options_.timeout_s) +
             " s");
        // The thread cannot be ended, nor what it uses be destroyed.
        for (Watched& left : threads) left.thread.detach();
        _exit(Finish());
      }
    }
  }
  for (Watched& watched : threads) watched.thread.join();
  SayPosted();
  return verdict_.ok() && (!link_->ended() || peer_disturbed());
}

void Stage::StartRound() {
  while (link_->Take(Word::kClosing)) {
  }
  peer_closing_.store(false, std::memory_order_release);
  stopped_.store(false, std::memory_order_release);
  loss_.reset();
}

bool Stage::Await(Word word, std::string* text) {
  for (;;) {
    if (std::optional<std::string> taken = link_->Take(word)) {
      *text = std::move(*taken);
      return true;
    }
    if (!verdict_.ok() || link_->ended()) return false;
    link_->Listen(kLookMs);
    HearPeer();
  }
}

bool Stage::Barrier() {
  if (!verdict_.ok()) return false;
  Say(Word::kBarrier, {});
  std::string text;
  return Await(Word::kBarrier, &text);
}

int Stage::Finish() {
  // Without a failure here or there the other process has just ended.
  if (verdict_.ok()) return kPeerVanished;
  const int64_t at_ns = verdict_.at_ns();
  std::string failure(sizeof at_ns, '\0');
  std::memcpy(failure.data(), &at_ns, sizeof at_ns);
  Say(Word::kFailure, failure + verdict_.text());
  if (rank_ == 0 && !peer_disturbed()) {
    // An error here may come of one there, which is then the one to tell. The other process always
    // answers, if only with this one.
    const int64_t until = NowNs() + kMs * kLastWordMs;
    while (!failed_there_ && !link_->ended() && NowNs() < until) {
      link_->Listen(kLookMs);
      HearPeer();
    }
    if (link_->ended() && !failed_there_ && options_.fork) return kPeerVanished;
  }
  if (rank_ == 0 || !options_.fork) {
    std::fprintf(stderr, "error: %s\n", verdict_.text().c_str());
  }
  return kFailed;
}

}  // namespace nccltune::host::net
