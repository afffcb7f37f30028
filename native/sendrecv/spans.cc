// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/spans.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sendrecv/inbox.h"

namespace nccltune::sendrecv {
namespace {

// How far a span goes beyond the message that it is for, on each side: messages beside it find it.
// Not further, as what a peer has mapped stays taken for a while after it is freed.
constexpr uint64_t kGrow = uint64_t{64} << 20;
constexpr size_t kMostUnshared = 1024;
// Before a socket that was full is tried again: descriptors are made for each try.
constexpr auto kPause = std::chrono::milliseconds(2);

}  // namespace

Spans::~Spans() {
  for (const std::unique_ptr<Span>& span : spans_) board_.TakeBack(span->share);
}

Found Spans::Find(DeviceAddress address, uint64_t bytes, size_t peer) {
  if (mailbox_ == nullptr || !chunks_.possible()) return {.reach = Reach::kUnshared};
  const Reach walked = Walk(address, bytes);
  if (walked != Reach::kReached) return {.reach = walked};
  Span* span = Known();
  if (span == nullptr) {
    const bool shareable =
        std::ranges::all_of(under_, [&](const Chunk& chunk) { return IsShareable(chunk); });
    if (!shareable) return {.reach = Reach::kUnshared};
    span = Offer();
    if (span == nullptr) return {.reach = Reach::kNoRoom};
  }
  Found found = board_.Ask(span->share, address - span->base(), peer);
  if (found.reach == Reach::kNotYet) Deliver(span, peer);
  return found;
}

// The chunks under a message.
Reach Spans::Walk(DeviceAddress address, uint64_t bytes) {
  under_.clear();
  for (DeviceAddress at = address; at < address + bytes; at = under_.back().end()) {
    const std::optional<Chunk> chunk = chunks_.Find(at);
    if (!chunk || (!under_.empty() && chunk->base != at)) return Reach::kNoMemory;
    if (!unshared_.empty()) {
      const auto known = unshared_.find(chunk->base);
      if (known != unshared_.end() && known->second == *chunk) return Reach::kUnshared;
    }
    if (under_.size() == kMostChunks) return Reach::kUnshared;
    under_.push_back(*chunk);
  }
  return under_.empty() ? Reach::kNoMemory : Reach::kReached;
}

bool Spans::IsShareable(const Chunk& chunk) {
  if (chunks_.IsShareable(chunk)) return true;
  if (unshared_.size() >= kMostUnshared) unshared_.clear();
  unshared_[chunk.base] = chunk;
  return false;
}

// The span that has what is under the message, as it is now.
Spans::Span* Spans::Known() {
  for (const std::unique_ptr<Span>& span : spans_) {
    if (span->stale || under_.front().base < span->base() || under_.back().end() > span->end()) {
      continue;
    }
    const auto first =
        std::ranges::lower_bound(span->chunks, under_.front().base, {}, &Chunk::base);
    const auto left = static_cast<size_t>(span->chunks.end() - first);
    if (left >= under_.size() && std::equal(under_.begin(), under_.end(), first)) {
      return span.get();
    }
    span->stale = true;
  }
  return nullptr;
}

bool Spans::Follows(const Chunk& last, uint64_t grown, const Chunk& next) {
  const auto known = unshared_.find(next.base);
  if (known != unshared_.end() && known->second == next) return false;
  return next.device == last.device && grown + next.bytes <= kGrow && IsShareable(next);
}

void Spans::Grow(std::vector<Chunk>* chunks) {
  std::vector<Chunk> before;
  uint64_t grown = 0;
  Chunk last = chunks->front();
  while (chunks->size() + before.size() < kMostChunks) {
    const std::optional<Chunk> next = chunks_.Find(last.base - 1);
    if (!next || next->end() != last.base || !Follows(last, grown, *next)) break;
    grown += next->bytes;
    last = *next;
    before.push_back(last);
  }
  chunks->insert(chunks->begin(), before.rbegin(), before.rend());
  grown = 0;
  while (chunks->size() < kMostChunks) {
    const std::optional<Chunk> next = chunks_.Find(chunks->back().end());
    if (!next || next->base != chunks->back().end() || !Follows(chunks->back(), grown, *next)) {
      break;
    }
    grown += next->bytes;
    chunks->push_back(*next);
  }
}

Spans::Span* Spans::Offer() {
  Share* const share = board_.Free();
  if (share == nullptr) return nullptr;
  auto span = std::make_unique<Span>();
  span->share = share;
  span->chunks = under_;
  Grow(&span->chunks);
  share->chunks = static_cast<uint32_t>(span->chunks.size());
  share->handle = {};
  share->base = span->base();
  share->bytes = span->end() - span->base();
  board_.Publish(share);
  // A smaller one is of no more use.
  for (const std::unique_ptr<Span>& each : spans_) {
    if (each->base() >= span->base() && each->end() <= span->end()) each->stale = true;
  }
  spans_.push_back(std::move(span));
  return spans_.back().get();
}

void Spans::Deliver(Span* span, size_t peer) {
  Delivery& delivery = span->deliveries[peer];
  if (delivery.sent == span->chunks.size() || Clock::now() < delivery.again) return;
  while (delivery.sent < span->chunks.size()) {
    Letter letter = {.place = place_, .number = span->share->number.load(), .first = delivery.sent};
    letter.count = std::min(Letter::kMost, span->chunks.size() - delivery.sent);
    const std::vector<Descriptor> descriptors = Export(*span, letter);
    if (descriptors.size() != letter.count) {
      span->stale = true;
      return;
    }
    for (size_t i = 0; i < letter.count; ++i) {
      letter.bytes[i] = span->chunks[delivery.sent + i].bytes;
    }
    const Mailbox::Outcome outcome = mailbox_->Send(peer, letter, descriptors);
    if (outcome == Mailbox::Outcome::kGone) span->share->refused.fetch_or(BitOf(peer));
    if (outcome == Mailbox::Outcome::kFull) delivery.again = Clock::now() + kPause;
    if (outcome != Mailbox::Outcome::kSent) return;
    delivery.sent += letter.count;
    board_.Changed();
  }
}

// Fewer than asked for where one is another by now, or CUDA refused it.
std::vector<Descriptor> Spans::Export(const Span& span, const Letter& letter) {
  std::vector<Descriptor> all;
  for (size_t i = 0; i < letter.count; ++i) {
    const Chunk& chunk = span.chunks[letter.first + i];
    if (chunks_.Find(chunk.base) != chunk) break;
    Descriptor descriptor = chunks_.Export(chunk);
    if (!descriptor) {
      unshared_[chunk.base] = chunk;
      break;
    }
    all.push_back(std::move(descriptor));
  }
  return all;
}

void Spans::Sweep() {
  for (const std::unique_ptr<Span>& span : spans_) {
    span->stale = span->stale || !std::ranges::all_of(span->chunks, [&](const Chunk& chunk) {
                    return chunks_.Find(chunk.base) == chunk;
                  });
  }
}

void Spans::Tidy(const InUse& in_use) {
  std::erase_if(spans_, [&](const std::unique_ptr<Span>& span) {
    if (!span->stale || in_use(span->share->number.load())) return false;
    board_.TakeBack(span->share);
    return true;
  });
}

}  // namespace nccltune::sendrecv
