// SPDX-License-Identifier: Apache-2.0
#include "net/receiver.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "net/clock.h"
#include "net/receive_flow.h"

namespace nccltune::net {
namespace {

using Kind = Pool::Kind;
using Role = Pool::Role;

constexpr int64_t kStarvedNs = 20 * kNsPerMs;
// Without any flow for so long, the connection has failed.
constexpr int64_t kAllDownNs = 10 * kNsPerSecond;
constexpr size_t kStashBytes = 256 << 20;

}  // namespace

Receiver::Receiver(Parts parts)
    : surroundings_(parts.surroundings),
      pool_(std::move(parts.pool)),
      door_(std::move(parts.door)),
      connection_(parts.party.connection),
      device_(std::move(parts.device)),
      peer_(PeerEnd(parts.party.sockets.front().fd()).Name()),
      stats_(StatsRole::kReceives, surroundings_.log, device_, peer_, parts.party.sockets.size()),
      slots_(kSlots) {
  for (ReceiveSlot& slot : slots_) slot.receiver = this;
  std::vector<Socket>& sockets = parts.party.sockets;
  for (size_t i = 1; i < sockets.size(); ++i) {
    Worker& worker = pool_->Pick(Role::kReceive, i == 1 ? Kind::kLookout : Kind::kOther);
    flows_.push_back(std::make_unique<ReceiveFlow>(*this, worker, std::move(sockets[i])));
  }
  express_ = std::make_unique<ExpressIn>(*this, pool_->Pick(Role::kReceive, Kind::kOther),
                                         std::move(sockets.front()));
  for (const auto& flow : flows_) flow->Start(ReceiveFlow::kEvents);
  express_->Start(ExpressIn::kEvents);
  door_->Serve(pool_, connection_, this);
}

Receiver::~Receiver() {
  door_->StopServing(connection_);
  for (const auto& flow : flows_) flow->Stop();
  express_->Stop();
  for (const auto& flow : flows_) flow->Close(*pool_);
  express_->Close(*pool_);
}

abi::Result Receiver::Post(void* data, size_t bytes, Request** request) {
  *request = nullptr;
  if (failed()) return Refuse();
  {
    const std::scoped_lock lock(mutex_);
    ReceiveSlot& slot = SlotOf(next_);
    if (held_requests_ == kMostRequests || slot.busy) return abi::kSuccess;
    slot.number = next_++;
    posted_ = next_;
    slot.busy = true;
    slot.data = static_cast<std::byte*>(data);
    slot.capacity = bytes;
    slot.total = 0;
    slot.known = false;
    slot.all = false;
    slot.complete.store(false, std::memory_order_relaxed);
    depth_.Begun(++held_requests_);
    ++counters_.requests;
    // What was quiet before it was waited for says nothing of a stall.
    if (waiting_++ == 0) arrived_ns_ = NowNs();
    *request = &slot;
    const auto [first, last] = stash_.equal_range(slot.number);
    for (auto at = first; at != last; ++at) {
      const Stashed& stashed = at->second;
      stash_bytes_ -= stashed.bytes.size();
      if (Locate(slot, stashed.header) != Place::kPosted) continue;
      if (!slot.arrivals.Wanted(stashed.header.offset, stashed.header.length)) continue;
      std::ranges::copy(stashed.bytes, slot.data + stashed.header.offset);
      Mark(slot, stashed.header);
    }
    stash_.erase(first, last);
  }
  for (const auto& flow : flows_) {
    if (flow->held() == (*request)->number) flow->worker().Wake();
  }
  return abi::kSuccess;
}

abi::Result Receiver::Test(Request* request, bool* done, size_t* bytes) {
  auto* const slot = static_cast<ReceiveSlot*>(request);
  *done = false;
  if (!slot->complete.load(std::memory_order_acquire)) express_->Look();
  if (!slot->complete.load(std::memory_order_acquire)) {
    if (!failed()) return abi::kSuccess;
    const std::scoped_lock lock(mutex_);
    // Not before the last thread has let go of the buffer.
    return slot->pins.empty() ? error_.load() : abi::kSuccess;
  }
  const std::scoped_lock lock(mutex_);
  *done = true;
  if (bytes != nullptr) *bytes = slot->total;
  slot->busy = false;
  --held_requests_;
  ++counters_.messages;
  counters_.bytes += slot->total;
  return abi::kSuccess;
}

void Receiver::Adopt(uint16_t flow, Socket socket) {
  if (flow == 0) {
    express_->Adopt(std::move(socket));
  } else if (flow <= flows_.size()) {
    flows_[flow - 1U]->Adopt(std::move(socket));
  }
}

Receiver::Place Receiver::Locate(const DataHeader& header) {
  const std::scoped_lock lock(mutex_);
  if (header.request >= next_) {
    return header.request < next_ + kSlots ? Place::kLater : Place::kWrong;
  }
  ReceiveSlot& slot = SlotOf(header.request);
  if (!slot.busy || slot.number != header.request) return Place::kDone;
  return Locate(slot, header);
}

// With the lock held.
Receiver::Place Receiver::Locate(ReceiveSlot& slot, const DataHeader& header) {
  if (slot.known) return slot.total == header.total ? Place::kPosted : Place::kWrong;
  if (header.total > slot.capacity) {
    Fail(abi::kInvalidUsage, "a message of " + std::to_string(header.total) +
                                 " bytes for a receive of " + std::to_string(slot.capacity));
    return Place::kWrong;
  }
  slot.known = true;
  slot.total = header.total;
  slot.missing = header.total;
  slot.arrivals.Reset(header.total);
  return Place::kPosted;
}

std::optional<std::byte*> Receiver::Pin(const DataHeader& header) {
  std::unique_lock lock(mutex_);
  ReceiveSlot& slot = SlotOf(header.request);
  const auto wanted = [&] {
    return !failed() && slot.busy && slot.number == header.request && slot.known &&
           slot.arrivals.Wanted(header.offset, header.length);
  };
  const auto overlaps = [&](const std::pair<uint64_t, uint64_t>& pin) {
    return header.offset < pin.first + pin.second && pin.first < header.offset + header.length;
  };
  while (wanted()) {
    if (std::ranges::none_of(slot.pins, overlaps)) {
      slot.pins.emplace_back(header.offset, header.length);
      return slot.data + header.offset;
    }
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  return std::nullopt;
}

void Receiver::Unpin(const DataHeader& header, bool arrived) {
  const std::scoped_lock lock(mutex_);
  ReceiveSlot& slot = SlotOf(header.request);
  std::erase(slot.pins, std::pair<uint64_t, uint64_t>(header.offset, header.length));
  if (arrived) Mark(slot, header);
  Settle(slot);
}

void Receiver::Put(const DataHeader& header, const std::byte* bytes) {
  const std::optional<std::byte*> to = Pin(header);
  if (!to) {
    ++counters_.not_wanted;
    return;
  }
  std::copy(bytes, bytes + header.length, *to);
  Unpin(header, true);
}

void Receiver::Mark(ReceiveSlot& slot, const DataHeader& header) {
  slot.missing -= slot.arrivals.Mark(header.offset, header.length);
  arrived_ns_ = NowNs();
  ++counters_.chunks;
  if (slot.missing == 0) slot.all = true;
  Settle(slot);
}

void Receiver::Settle(ReceiveSlot& slot) {
  if (!slot.all || !slot.pins.empty() || slot.complete) return;
  --waiting_;
  slot.complete.store(true, std::memory_order_release);
}

bool Receiver::starved(int64_t now_ns) const {
  return waiting_.load() != 0 && now_ns - arrived_ns_.load() > kStarvedNs;
}

bool Receiver::Stash(const DataHeader& header, std::vector<std::byte> bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (header.request >= next_) {
      if (stash_bytes_ + bytes.size() > kStashBytes) return false;
      stash_bytes_ += bytes.size();
      ++counters_.stashed;
      stash_.emplace(header.request, Stashed{header, std::move(bytes)});
      return true;
    }
  }
  // It was posted meanwhile.
  if (Locate(header) == Place::kPosted) Put(header, bytes.data());
  return true;
}

void Receiver::FlowsChanged(int64_t now_ns, bool bye, const std::string& why) {
  bool up = express_->up();
  for (const auto& flow : flows_) up |= flow->up();
  const std::scoped_lock lock(mutex_);
  if (!why.empty()) down_why_ = why;
  if (up) {
    all_down_ns_ = 0;
    return;
  }
  if (all_down_ns_ == 0) all_down_ns_ = now_ns;
  if (bye) Fail(abi::kRemoteError, down_why_);
}

void Receiver::Tick(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (all_down_ns_ != 0 && now_ns - all_down_ns_ > kAllDownNs) {
    Fail(abi::kRemoteError, "no flow for 10 s: " + down_why_);
  }
}

// With the lock held.
void Receiver::Fail(abi::Result result, const std::string& why) {
  if (failed()) return;
  size_t waiting = 0;
  uint64_t bytes = 0;
  for (const ReceiveSlot& slot : slots_) {
    if (!slot.busy || slot.complete) continue;
    ++waiting;
    bytes += slot.known ? slot.missing : slot.capacity;
  }
  failure_ = "receiving from " + peer_ + " on " + device_ +
             (waiting != 0 ? " failed with " : " ended with ") + std::to_string(bytes) +
             " bytes outstanding: " + why;
  if (waiting != 0) {
    surroundings_.log.Warn(std::exchange(failure_, {}));
  } else {
    surroundings_.log.Info(failure_);
  }
  error_ = result;
  // The peer must not come back to it for ever.
  door_->StopServing(connection_);
  for (const auto& flow : flows_) flow->worker().Wake();
}

// What was not worth a warning until somebody wants to go on.
abi::Result Receiver::Refuse() {
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) surroundings_.log.Warn(std::exchange(failure_, {}));
  return error_;
}

}  // namespace nccltune::net
