// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/memory/exported_memory.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace nccltune::sendrecv {
namespace {

// A span extends up to this many bytes beyond its message on each side, so that neighbouring
// messages use the same span. The margin is limited, because the peer keeps freed memory mapped for
// a while.
constexpr uint64_t kMaxMargin = uint64_t{64} << 20;
constexpr size_t kMaxUnshareable = 1024;
// How long to wait before a full socket is tried again. Each try creates descriptors, so a try at
// every message would be slow.
constexpr auto kRetryPause = std::chrono::milliseconds(2);
// How often the application's memory is checked.
constexpr auto kCheckInterval = std::chrono::seconds(1);

}  // namespace

Spans::~Spans() {
  for (const std::unique_ptr<Span>& span : spans_) table_.Withdraw(span->entry);
}

ExportLookup Spans::Find(DeviceAddress address, uint64_t bytes, size_t peer) {
  if (mailbox_ == nullptr || !mailbox_->HasPeer(peer) || !chunks_.IsSupported()) {
    return {.status = ExportStatus::kUnshareable};
  }
  const ExportStatus walked = FindMessageChunks(address, bytes);
  if (walked != ExportStatus::kMapped) return {.status = walked};
  Span* span = FindCurrentSpan();
  if (span == nullptr) {
    const bool shareable = std::ranges::all_of(
        message_chunks_, [&](const MappedChunk& chunk) { return IsShareable(chunk); });
    if (!shareable) return {.status = ExportStatus::kUnshareable};
    span = Export();
    if (span == nullptr) return {.status = ExportStatus::kTableFull};
  }
  ExportLookup found = table_.Request(span->entry, address - span->base(), peer);
  if (found.status == ExportStatus::kPending) Deliver(span, peer);
  return found;
}

// Collects the chunks under a message.
ExportStatus Spans::FindMessageChunks(DeviceAddress address, uint64_t bytes) {
  message_chunks_.clear();
  for (DeviceAddress at = address; at < address + bytes; at = message_chunks_.back().end()) {
    const std::optional<MappedChunk> chunk = chunks_.Find(at);
    if (!chunk || (!message_chunks_.empty() && chunk->base != at)) return ExportStatus::kNoMemory;
    if (!unshareable_.empty()) {
      const auto known = unshareable_.find(chunk->base);
      if (known != unshareable_.end() && known->second == *chunk) return ExportStatus::kUnshareable;
    }
    if (message_chunks_.size() == kMaxEntryChunks) return ExportStatus::kUnshareable;
    message_chunks_.push_back(*chunk);
  }
  return message_chunks_.empty() ? ExportStatus::kNoMemory : ExportStatus::kMapped;
}

bool Spans::IsShareable(const MappedChunk& chunk) {
  if (chunks_.IsShareable(chunk)) return true;
  if (unshareable_.size() >= kMaxUnshareable) unshareable_.clear();
  unshareable_[chunk.base] = chunk;
  return false;
}

// Returns a span that contains the message, and whose chunks under the message are unchanged.
// Returns null if there is none.
Spans::Span* Spans::FindCurrentSpan() {
  for (const std::unique_ptr<Span>& span : spans_) {
    if (span->stale || message_chunks_.front().base < span->base() ||
        message_chunks_.back().end() > span->end()) {
      continue;
    }
    const auto first = std::ranges::lower_bound(span->chunks, message_chunks_.front().base, {},
                                                &MappedChunk::base);
    const auto left = static_cast<size_t>(span->chunks.end() - first);
    if (left >= message_chunks_.size() &&
        std::equal(message_chunks_.begin(), message_chunks_.end(), first)) {
      return span.get();
    }
    span->stale = true;
  }
  return nullptr;
}

bool Spans::MayExtend(const MappedChunk& last, uint64_t grown, const MappedChunk& next) {
  const auto known = unshareable_.find(next.base);
  if (known != unshareable_.end() && known->second == next) return false;
  return next.device == last.device && grown + next.bytes <= kMaxMargin && IsShareable(next);
}

void Spans::Grow(std::vector<MappedChunk>* chunks) {
  std::vector<MappedChunk> before;
  uint64_t grown = 0;
  MappedChunk last = chunks->front();
  while (chunks->size() + before.size() < kMaxEntryChunks) {
    const std::optional<MappedChunk> next = chunks_.Find(last.base - 1);
    if (!next || next->end() != last.base || !MayExtend(last, grown, *next)) break;
    grown += next->bytes;
    last = *next;
    before.push_back(last);
  }
  chunks->insert(chunks->begin(), before.rbegin(), before.rend());
  grown = 0;
  while (chunks->size() < kMaxEntryChunks) {
    const std::optional<MappedChunk> next = chunks_.Find(chunks->back().end());
    if (!next || next->base != chunks->back().end() || !MayExtend(chunks->back(), grown, *next)) {
      break;
    }
    grown += next->bytes;
    chunks->push_back(*next);
  }
}

Spans::Span* Spans::Export() {
  ExportEntry* const entry = table_.FindFree();
  if (entry == nullptr) return nullptr;
  auto span = std::make_unique<Span>();
  span->entry = entry;
  span->chunks = message_chunks_;
  Grow(&span->chunks);
  entry->chunks = static_cast<uint32_t>(span->chunks.size());
  entry->handle = {};
  entry->base = span->base();
  entry->bytes = span->end() - span->base();
  table_.Publish(entry);
  // Smaller spans inside the new one are no longer needed.
  for (const std::unique_ptr<Span>& each : spans_) {
    if (each->base() >= span->base() && each->end() <= span->end()) each->stale = true;
  }
  spans_.push_back(std::move(span));
  return spans_.back().get();
}

void Spans::Deliver(Span* span, size_t peer) {
  ChunkDelivery& delivery = span->deliveries[peer];
  if (delivery.sent == span->chunks.size() || Clock::now() < delivery.retry_after) return;
  while (delivery.sent < span->chunks.size()) {
    ChunkMessage datagram = {.process = ThisProcess(),
                             .place = place_,
                             .number = span->entry->number.load(),
                             .first = delivery.sent};
    datagram.count = std::min(ChunkMessage::kMaxChunks, span->chunks.size() - delivery.sent);
    const std::vector<Descriptor> descriptors = Export(*span, datagram);
    if (descriptors.size() != datagram.count) {
      span->stale = true;
      return;
    }
    for (size_t i = 0; i < datagram.count; ++i) {
      datagram.bytes[i] = span->chunks[delivery.sent + i].bytes;
    }
    const Mailbox::SendResult outcome = mailbox_->Send(peer, datagram, descriptors);
    if (outcome == Mailbox::SendResult::kGone) span->entry->refused.fetch_or(PlaceBit(peer));
    if (outcome == Mailbox::SendResult::kFull) delivery.retry_after = Clock::now() + kRetryPause;
    if (outcome != Mailbox::SendResult::kSent) return;
    delivery.sent += datagram.count;
    table_.NotifyPeers();
  }
}

// Returns the file descriptors of the datagram's chunks. Returns fewer if a chunk has changed or
// CUDA refuses to export a chunk.
std::vector<Descriptor> Spans::Export(const Span& span, const ChunkMessage& datagram) {
  std::vector<Descriptor> all;
  for (size_t i = 0; i < datagram.count; ++i) {
    const MappedChunk& chunk = span.chunks[datagram.first + i];
    if (chunks_.Find(chunk.base) != chunk) break;
    Descriptor descriptor = chunks_.Export(chunk);
    if (!descriptor) {
      unshareable_[chunk.base] = chunk;
      break;
    }
    all.push_back(std::move(descriptor));
  }
  return all;
}

void Spans::MarkStale() {
  for (const std::unique_ptr<Span>& span : spans_) {
    span->stale = span->stale || !std::ranges::all_of(span->chunks, [&](const MappedChunk& chunk) {
                    return chunks_.Find(chunk.base) == chunk;
                  });
  }
}

void Spans::WithdrawStale(const InUse& in_use) {
  std::erase_if(spans_, [&](const std::unique_ptr<Span>& span) {
    if (!span->stale || in_use(span->entry->number.load())) return false;
    table_.Withdraw(span->entry);
    return true;
  });
}

ExportedMemory::~ExportedMemory() {
  for (const auto& [base, known] : known_) Withdraw(known);
}

void ExportedMemory::Withdraw(const KnownAllocation& known) {
  table_.Withdraw(&record_.exports[known.index]);
}

void ExportedMemory::CheckFreed() {
  if (std::chrono::steady_clock::now() - checked_ > kCheckInterval) WithdrawFreed();
}

void ExportedMemory::WithdrawFreed() {
  checked_ = std::chrono::steady_clock::now();
  std::erase_if(known_, [&](const auto& each) {
    const auto now = driver_.Find(each.first);
    if (now && now->id == each.second.allocation.id) return false;
    Withdraw(each.second);
    return true;
  });
  spans_.MarkStale();
}

ExportEntry* ExportedMemory::Export(const Allocation& allocation) {
  // First withdraw freed allocations, which still occupy entries of the table.
  WithdrawFreed();
  ExportEntry* const free = table_.FindFree();
  if (free == nullptr) return nullptr;
  if (!driver_.Export(allocation, &free->handle)) return nullptr;
  free->chunks = 0;
  free->base = allocation.base;
  free->bytes = allocation.bytes;
  table_.Publish(free);
  known_[allocation.base] = {allocation, static_cast<size_t>(free - record_.exports.data())};
  return free;
}

ExportLookup ExportedMemory::Find(DeviceAddress address, uint64_t bytes, size_t peer) {
  CheckFreed();
  const auto allocation = driver_.Find(address);
  if (!allocation) return {.status = ExportStatus::kNoMemory};
  if (!allocation->shareable) return spans_.Find(address, bytes, peer);
  // `bytes` is the application's number, so the comparison must not overflow.
  if (bytes > allocation->bytes - (address - allocation->base)) {
    return {.status = ExportStatus::kNoMemory};
  }
  const auto known = known_.find(allocation->base);
  ExportEntry* entry = nullptr;
  if (known != known_.end() && known->second.allocation.id == allocation->id) {
    entry = &record_.exports[known->second.index];
  } else {
    entry = Export(*allocation);
    if (entry == nullptr) return {.status = ExportStatus::kTableFull};
  }
  return table_.Request(entry, address - allocation->base, peer);
}

}  // namespace nccltune::sendrecv
