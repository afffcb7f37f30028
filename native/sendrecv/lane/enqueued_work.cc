// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/enqueued_work.h"

#include <algorithm>

namespace nccltune::sendrecv {
namespace {

// Least time between two events in a stream while NCCL carries all messages of the stream's groups.
constexpr auto kEventInterval = std::chrono::milliseconds(4);
// How long after the loss of a peer its last messages may still complete here. Until then NCCL does
// not count as waiting for the peer.
constexpr auto kPeerLossGrace = std::chrono::seconds(1);
// If the context is still busy this long after a peer was lost, its work may be waiting for that
// peer.
constexpr auto kStuckAfter = std::chrono::seconds(5);
// After this time NCCL's messages without an event count as complete.
constexpr auto kAssumeCompleteAfter = std::chrono::seconds(10);

}  // namespace

void EnqueuedWork::TrackPeer(int peer) {
  const std::scoped_lock lock(mutex_);
  messages_.try_emplace(peer);
}

void EnqueuedWork::BeginNative(std::span<const int> peers) {
  const std::scoped_lock lock(mutex_);
  for (const int peer : peers) {
    const auto found = messages_.find(peer);
    if (found != messages_.end()) found->second.calling = true;
  }
}

void EnqueuedWork::NoteRepeat() {
  if (last_.repeat.load(std::memory_order_acquire) == Repeat::kNone) return;
  for (const int peer : last_.peers) {
    const auto found = messages_.find(peer);
    if (found != messages_.end()) found->second.native[last_.stream] = nullptr;
  }
}

void EnqueuedWork::ForgetLast() {
  NoteRepeat();
  last_.number = 0;
  last_.repeat = Repeat::kNone;
}

void EnqueuedWork::Enqueued(const StreamWork& work) {
  const std::scoped_lock lock(mutex_);
  ForgetLast();
  last_group_tracked_ = false;
  bool lost = false;
  for (const int peer : work.native) {
    const auto found = messages_.find(peer);
    if (found == messages_.end()) continue;
    lost = lost || found->second.lost;
    found->second.calling = false;
    found->second.native[work.stream] = nullptr;
  }
  const auto now = Clock::now();
  const auto known = recorded_.find(work.stream);
  if (!work.ours && !lost && known != recorded_.end() && now - known->second.at < kEventInterval) {
    last_group_tracked_ = true;
    return;
  }
  // Captured work is not tracked: a graph runs at unknown times, and events recorded in a capture
  // cannot be queried.
  if (driver_.Capturing(work.stream)) {
    for (auto& [peer, messages] : messages_) messages.native.erase(work.stream);
    return;
  }
  last_group_tracked_ = RecordEvent(work.stream);
}

uint64_t EnqueuedWork::Remember(Stream stream, std::span<const int> peers) {
  const std::scoped_lock lock(mutex_);
  if (!last_group_tracked_) return 0;
  last_.number = ++numbers_;
  const auto now = Clock::now();
  last_.ticks = Ticks();
  // Measure the counter's rate since the communicator was created. The added interval makes the
  // first estimates low, so that events are recorded early rather than late.
  const auto since = std::chrono::duration<double>(now - made_) + kEventInterval;
  const auto left = std::chrono::duration<double>(recorded_.at(stream).at + kEventInterval - now);
  const auto ticks = static_cast<double>(static_cast<int64_t>(last_.ticks - ticks_made_));
  last_.max_ticks = static_cast<uint64_t>(std::max(0.0, left / since * ticks));
  last_.stream = stream;
  last_.peers.assign(peers.begin(), peers.end());
  return last_.number;
}

void EnqueuedWork::Forget() {
  const std::scoped_lock lock(mutex_);
  ForgetLast();
}

EnqueuedWork::SharedEvent EnqueuedWork::NewSharedEvent() {
  Event event = nullptr;
  if (idle_.empty()) {
    event = driver_.NewEvent();
  } else {
    event = idle_.back();
    idle_.pop_back();
  }
  if (event == nullptr) return nullptr;
  return {event, [this](Event unused) { idle_.push_back(unused); }};
}

bool EnqueuedWork::RecordEvent(Stream stream) {
  ForgetLast();
  const SharedEvent event = NewSharedEvent();
  if (event == nullptr || !driver_.Record(event.get(), stream)) {
    untracked_ = true;
    return false;
  }
  recorded_[stream] = {.event = event, .at = Clock::now()};
  for (auto& [peer, messages] : messages_) {
    const auto found = messages.native.find(stream);
    // The event also covers messages of earlier groups that have no event yet.
    if (found != messages.native.end() && found->second == nullptr) found->second = event;
  }
  return true;
}

bool EnqueuedWork::IsComplete() {
  const std::scoped_lock lock(mutex_);
  return !untracked_ && std::ranges::all_of(recorded_, [&](const auto& each) {
    return driver_.HasHappened(each.second.event.get());
  });
}

bool EnqueuedWork::LacksEvent(Stream stream) const {
  return std::ranges::any_of(messages_, [&](const auto& each) {
    const auto found = each.second.native.find(stream);
    return found != each.second.native.end() && found->second == nullptr;
  });
}

bool EnqueuedWork::EnsureEvents(std::span<const Stream> streams) {
  const std::scoped_lock lock(mutex_);
  NoteRepeat();
  for (Stream stream : streams) {
    if (LacksEvent(stream) && !driver_.Capturing(stream)) RecordEvent(stream);
  }
  const auto now = Clock::now();
  // With a nonblocking communicator, NCCL may still enqueue its work after our call has returned.
  const bool calling =
      std::ranges::any_of(messages_, [](const auto& each) { return each.second.calling; });
  return !calling && std::ranges::none_of(recorded_, [&](const auto& each) {
    return LacksEvent(each.first) && now - each.second.at < kAssumeCompleteAfter;
  });
}

void EnqueuedWork::PeerLost(int peer) {
  const std::scoped_lock lock(mutex_);
  NoteRepeat();
  Messages& messages = messages_[peer];
  messages.lost = true;
  const bool lacks_event =
      std::ranges::any_of(messages.native, [](const auto& each) { return each.second == nullptr; });
  if (lacks_event && !driver_.IsContextReset()) messages.context_event = NewSharedEvent();
  if (messages.context_event != nullptr && !driver_.RecordAll(messages.context_event.get())) {
    messages.context_event = nullptr;
  }
}

bool EnqueuedWork::MayWaitFor(int peer, Clock::time_point lost) {
  const auto since = Clock::now() - lost;
  if (since < kPeerLossGrace) return false;
  const std::scoped_lock lock(mutex_);
  NoteRepeat();
  const Messages& messages = messages_[peer];
  const bool repeat = last_.repeat.load(std::memory_order_acquire) == Repeat::kCalling &&
                      std::ranges::find(last_.peers, peer) != last_.peers.end();
  const bool stuck = messages.context_event != nullptr && since > kStuckAfter &&
                     !driver_.HasHappened(messages.context_event.get());
  return messages.calling || repeat || std::ranges::any_of(messages.native, [&](const auto& each) {
           return each.second == nullptr ? stuck : !driver_.HasHappened(each.second.get());
         });
}

void EnqueuedWork::Clear() {
  const std::scoped_lock lock(mutex_);
  recorded_.clear();
  messages_.clear();
  for (Event event : idle_) driver_.DeleteEvent(event);
  idle_.clear();
}

}  // namespace nccltune::sendrecv
