// SPDX-License-Identifier: Apache-2.0
#include "net/receiver.h"

#include <algorithm>
#include <thread>

#include "net/clock.h"
#include "net/receive_flow.h"

namespace nccltune::net {
namespace {

using Kind = Pool::Kind;
using Role = Pool::Role;

constexpr int64_t kStalledNs = 20 * kNsPerMs;

std::string NameOfPeer(const PendingConnection& pending) {
  return PeerEnd(pending.sockets.front().fd()).Name();
}

}  // namespace

Receiver::Receiver(Resources resources)
    : context_(resources.context),
      pool_(std::move(resources.pool)),
      acceptor_(std::move(resources.acceptor)),
      connection_(resources.pending.connection),
      stats_(StatsRole::kReceives, context_.log, resources.device, NameOfPeer(resources.pending),
             resources.pending.sockets.size()),
      slots_(kSlots),
      failure_(context_.log,
               "receiving from " + NameOfPeer(resources.pending) + " on " + resources.device,
               context_.settings.down_timeout_s) {
  for (ReceiveSlot& slot : slots_) slot.receiver = this;
  std::vector<Descriptor>& sockets = resources.pending.sockets;
  for (size_t i = 1; i < sockets.size(); ++i) {
    auto worker = pool_->Pick(Role::kReceive, i == 1 ? Kind::kSpinning : Kind::kOther);
    flows_.push_back(
        std::make_unique<ReceiveFlow>(*this, std::move(worker), std::move(sockets[i])));
  }
  express_ = std::make_unique<ExpressReceiveFlow>(*this, pool_->Pick(Role::kReceive, Kind::kOther),
                                                  std::move(sockets.front()));
}

int Receiver::Start() {
  for (const auto& flow : flows_) {
    if (const int error = flow->Start(ReceiveFlow::kEvents); error != 0) return error;
  }
  if (const int error = express_->Start(ExpressReceiveFlow::kEvents); error != 0) return error;
  acceptor_->Serve(pool_, connection_, this);
  return 0;
}

Receiver::~Receiver() {
  acceptor_->StopServing(connection_);
  for (const auto& flow : flows_) flow->Stop();
  express_->Stop();
  for (const auto& flow : flows_) flow->Close(*pool_);
  express_->Close(*pool_);
}

abi::Result Receiver::Post(void* data, size_t bytes, TransferRequest** request) {
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
    depth_.RecordHeld(++held_requests_);
    ++counters_.requests;
    // Restart the stall timer: silence before a request was posted is not a stall.
    if (waiting_++ == 0) arrived_ns_ = NowNs();
    *request = &slot;
    const auto [first, last] = stash_.equal_range(slot.number);
    for (auto at = first; at != last; ++at) {
      const Stashed& stashed = at->second;
      stash_bytes_ -= stashed.bytes.size();
      if (Locate(slot, stashed.header) != ChunkState::kPosted) continue;
      if (!slot.arrivals.AnyMissing(stashed.header.offset, stashed.header.length)) continue;
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

abi::Result Receiver::Test(TransferRequest* request, bool* done, size_t* bytes) {
  auto* const slot = static_cast<ReceiveSlot*>(request);
  *done = false;
  if (!slot->complete.load(std::memory_order_acquire)) express_->Poll();
  if (!slot->complete.load(std::memory_order_acquire)) {
    if (!failed()) return abi::kSuccess;
    const std::scoped_lock lock(mutex_);
    // Report the failure only after the last thread has released the buffer.
    return slot->pins.empty() ? failure_.result() : abi::kSuccess;
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

void Receiver::Adopt(uint16_t flow, Descriptor socket) {
  if (flow == 0) {
    express_->Adopt(std::move(socket));
  } else if (flow <= flows_.size()) {
    flows_[flow - 1U]->Adopt(std::move(socket));
  }
}

Receiver::ChunkState Receiver::Locate(const DataHeader& header) {
  const std::scoped_lock lock(mutex_);
  if (header.request >= next_) {
    return header.request < next_ + kSlots ? ChunkState::kNotPosted : ChunkState::kInvalid;
  }
  ReceiveSlot& slot = SlotOf(header.request);
  if (!slot.busy || slot.number != header.request) return ChunkState::kArrived;
  return Locate(slot, header);
}

// The caller holds `mutex_`.
Receiver::ChunkState Receiver::Locate(ReceiveSlot& slot, const DataHeader& header) {
  if (slot.known) return slot.total == header.total ? ChunkState::kPosted : ChunkState::kInvalid;
  if (header.total > slot.capacity) {
    Fail(abi::kInvalidUsage, "a message of " + std::to_string(header.total) +
                                 " bytes for a receive of " + std::to_string(slot.capacity));
    return ChunkState::kInvalid;
  }
  slot.known = true;
  slot.total = header.total;
  slot.missing = header.total;
  slot.arrivals.Reset(header.total);
  return ChunkState::kPosted;
}

std::optional<std::byte*> Receiver::Pin(const DataHeader& header) {
  std::unique_lock lock(mutex_);
  ReceiveSlot& slot = SlotOf(header.request);
  const auto wanted = [&] {
    return !failed() && slot.busy && slot.number == header.request && slot.known &&
           slot.arrivals.AnyMissing(header.offset, header.length);
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
  CompleteIfDone(slot);
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
  CompleteIfDone(slot);
}

void Receiver::CompleteIfDone(ReceiveSlot& slot) {
  if (!slot.all || !slot.pins.empty() || slot.complete) return;
  --waiting_;
  slot.complete.store(true, std::memory_order_release);
}

bool Receiver::stalled(int64_t now_ns) const {
  return waiting_.load() != 0 && now_ns - arrived_ns_.load() > kStalledNs;
}

bool Receiver::Stash(const DataHeader& header, std::vector<std::byte> bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (header.request >= next_) {
      if (stash_bytes_ + bytes.size() > context_.settings.stash_bytes) return false;
      stash_bytes_ += bytes.size();
      ++counters_.stashed;
      stash_.emplace(header.request, Stashed{header, std::move(bytes)});
      return true;
    }
  }
  // The request was posted in the meantime.
  if (Locate(header) == ChunkState::kPosted) Put(header, bytes.data());
  return true;
}

void Receiver::FlowsChanged(int64_t now_ns, bool bye, const SocketEnd& end) {
  bool up = express_->up();
  for (const auto& flow : flows_) up |= flow->up();
  const std::scoped_lock lock(mutex_);
  failure_.FlowsChanged(now_ns, up, end);
  if (!up && bye) Fail(abi::kRemoteError, failure_.why_down());
}

void Receiver::Tick(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (const std::string why = failure_.NoFlow(now_ns); !why.empty()) Fail(abi::kRemoteError, why);
}

void Receiver::FailByException(const char* what) noexcept {
  const std::scoped_lock lock(mutex_);
  Fail(abi::kSystemError, what);
}

// The caller holds `mutex_`.
void Receiver::Fail(abi::Result result, std::string_view why) noexcept {
  if (failed()) return;
  bool waiting = false;
  uint64_t bytes = 0;
  for (const ReceiveSlot& slot : slots_) {
    if (!slot.busy || slot.complete) continue;
    waiting = true;
    bytes += slot.known ? slot.missing : slot.capacity;
  }
  failure_.Set(result, why, waiting, bytes);
  // Without this call, the peer would reconnect to the failed connection forever.
  acceptor_->StopServing(connection_);
  for (const auto& flow : flows_) flow->worker().Wake();
  express_->worker().Wake();
}

abi::Result Receiver::Refuse() {
  const std::scoped_lock lock(mutex_);
  return failure_.Refuse();
}

}  // namespace nccltune::net
