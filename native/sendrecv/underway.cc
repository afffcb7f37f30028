// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/underway.h"

#include <algorithm>

namespace nccltune::sendrecv {
namespace {

// Between events behind messages that are NCCL's alone.
constexpr auto kEventEvery = std::chrono::milliseconds(4);
// What a peer did last before it was gone may be over here a moment later than there.
constexpr auto kGrace = std::chrono::seconds(1);
// A context that has not done all that it had to when a peer was gone may be waiting for it.
constexpr auto kStuck = std::chrono::seconds(5);
// Messages of NCCL's that no event is behind are over after this time, or their stream is not used
// any more.
constexpr auto kForgotten = std::chrono::seconds(10);

}  // namespace

void Underway::Meet(int peer) {
  const std::scoped_lock lock(mutex_);
  messages_.try_emplace(peer);
}

void Underway::BeginNative(std::span<const int> peers) {
  const std::scoped_lock lock(mutex_);
  for (const int peer : peers) {
    const auto found = messages_.find(peer);
    if (found != messages_.end()) found->second.calling = true;
  }
}

void Underway::CountAgain() {
  if (last_.again.load(std::memory_order_acquire) == Again::kNot) return;
  for (const int peer : last_.peers) {
    const auto found = messages_.find(peer);
    if (found != messages_.end()) found->second.native[last_.stream] = nullptr;
  }
}

void Underway::ForgetLast() {
  CountAgain();
  last_.number = 0;
  last_.again = Again::kNot;
}

void Underway::Enqueued(const Part& part) {
  const std::scoped_lock lock(mutex_);
  ForgetLast();
  tracked_ = false;
  bool gone = false;
  for (const int peer : part.native) {
    const auto found = messages_.find(peer);
    if (found == messages_.end()) continue;
    gone = gone || found->second.gone;
    found->second.calling = false;
    found->second.native[part.stream] = nullptr;
  }
  const auto now = Clock::now();
  const auto known = used_.find(part.stream);
  if (!part.ours && !gone && known != used_.end() && now - known->second.at < kEventEvery) {
    tracked_ = true;
    return;
  }
  // A graph runs when nobody knows, and its events may not be asked.
  if (driver_.Capturing(part.stream)) {
    for (auto& [peer, messages] : messages_) messages.native.erase(part.stream);
    return;
  }
  tracked_ = Mark(part.stream);
}

uint64_t Underway::Remember(Stream stream, std::span<const int> peers) {
  const std::scoped_lock lock(mutex_);
  if (!tracked_) return 0;
  last_.number = ++numbers_;
  const auto now = Clock::now();
  last_.ticks = Ticks();
  // How long one takes is known from all since the communicator was made, at first too few of them.
  const auto since = std::chrono::duration<double>(now - made_) + kEventEvery;
  const auto left = std::chrono::duration<double>(used_.at(stream).at + kEventEvery - now);
  const auto ticks = static_cast<double>(static_cast<int64_t>(last_.ticks - ticks_made_));
  last_.most = static_cast<uint64_t>(std::max(0.0, left / since * ticks));
  last_.stream = stream;
  last_.peers.assign(peers.begin(), peers.end());
  return last_.number;
}

void Underway::Forget() {
  const std::scoped_lock lock(mutex_);
  ForgetLast();
}

Underway::Moment Underway::NewMoment() {
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

bool Underway::Mark(Stream stream) {
  ForgetLast();
  const Moment moment = NewMoment();
  if (moment == nullptr || !driver_.Record(moment.get(), stream)) {
    lost_ = true;
    return false;
  }
  used_[stream] = {.moment = moment, .at = Clock::now()};
  for (auto& [peer, messages] : messages_) {
    const auto found = messages.native.find(stream);
    // Also of earlier groups, behind which no event is.
    if (found != messages.native.end() && found->second == nullptr) found->second = moment;
  }
  return true;
}

bool Underway::IsOver() {
  const std::scoped_lock lock(mutex_);
  return !lost_ && std::ranges::all_of(used_, [&](const auto& each) {
    return driver_.HasHappened(each.second.moment.get());
  });
}

bool Underway::IsUnknown(Stream stream) const {
  return std::ranges::any_of(messages_, [&](const auto& each) {
    const auto found = each.second.native.find(stream);
    return found != each.second.native.end() && found->second == nullptr;
  });
}

bool Underway::HasEvents(std::span<const Stream> streams) {
  const std::scoped_lock lock(mutex_);
  CountAgain();
  for (Stream stream : streams) {
    if (IsUnknown(stream) && !driver_.Capturing(stream)) Mark(stream);
  }
  const auto now = Clock::now();
  // Of a communicator that does not block NCCL's calls go on behind ours.
  const bool calling =
      std::ranges::any_of(messages_, [](const auto& each) { return each.second.calling; });
  return !calling && std::ranges::none_of(used_, [&](const auto& each) {
    return IsUnknown(each.first) && now - each.second.at < kForgotten;
  });
}

void Underway::Gone(int peer) {
  const std::scoped_lock lock(mutex_);
  CountAgain();
  Messages& messages = messages_[peer];
  messages.gone = true;
  const bool unknown =
      std::ranges::any_of(messages.native, [](const auto& each) { return each.second == nullptr; });
  if (unknown) messages.everything = NewMoment();
  if (messages.everything != nullptr && !driver_.RecordAll(messages.everything.get())) {
    messages.everything = nullptr;
  }
}

bool Underway::WaitsFor(int peer, Clock::time_point gone) {
  const auto since = Clock::now() - gone;
  if (since < kGrace) return false;
  const std::scoped_lock lock(mutex_);
  CountAgain();
  const Messages& messages = messages_[peer];
  const bool again = last_.again.load(std::memory_order_acquire) == Again::kCalling &&
                     std::ranges::find(last_.peers, peer) != last_.peers.end();
  const bool stuck = messages.everything != nullptr && since > kStuck &&
                     !driver_.HasHappened(messages.everything.get());
  return messages.calling || again || std::ranges::any_of(messages.native, [&](const auto& each) {
           return each.second == nullptr ? stuck : !driver_.HasHappened(each.second.get());
         });
}

void Underway::Clear() {
  const std::scoped_lock lock(mutex_);
  used_.clear();
  messages_.clear();
  for (Event event : idle_) driver_.DeleteEvent(event);
  idle_.clear();
}

}  // namespace nccltune::sendrecv
