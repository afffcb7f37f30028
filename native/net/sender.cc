// SPDX-License-Identifier: Apache-2.0
#include "net/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/arrivals.h"
#include "net/clock.h"
#include "net/send_flow.h"

namespace nccltune::net {
namespace {

using Kind = Pool::Kind;
using Role = Pool::Role;

// Without any flow for so long, the connection has failed.
constexpr int64_t kAllDownNs = 10 * kNsPerSecond;
// So much of eager messages may be unheard of before the application's thread looks.
constexpr size_t kUnheard = 64;
constexpr size_t kUnheardBytes = 256 << 10;
// With more than that no message is eager.
constexpr size_t kMostUnheardBytes = 512 << 10;
// Of what is pending, for one thread. A thread costs who wakes it some microseconds.
constexpr uint64_t kBytesAThread = 128 << 10;
// So many messages may wait for one lookout: to be third in its queue is better than to be woken
// for.
constexpr int kMostForLookout = 3;
// The oldest requests of the bulk flows are looked through for what is late.
constexpr uint64_t kLateWindow = 4;
// Of a chunk, each late when the next one is sent. Two flows that stall may be those of one NIC.
constexpr uint8_t kMostCopies = 8;

}  // namespace

Sender::Sender(Parts parts)
    : surroundings_(parts.surroundings),
      pool_(std::move(parts.pool)),
      device_(std::move(parts.device)),
      peer_(parts.dialers.front().peer().Name()),
      stats_(StatsRole::kSends, surroundings_.log, device_, peer_, parts.dialers.size()),
      slots_(kSlots),
      progress_ns_(NowNs()) {
  for (SendSlot& slot : slots_) slot.sender = this;
  for (size_t i = 1; i < parts.dialers.size(); ++i) {
    Worker& worker = pool_->Pick(Role::kSend, i == 1 ? Kind::kLookout : Kind::kOther);
    flows_.push_back(std::make_unique<SendFlow>(*this, worker, std::move(parts.dialers[i])));
  }
  express_ = std::make_unique<ExpressOut>(*this, pool_->Pick(Role::kSend, Kind::kOther),
                                          std::move(parts.dialers.front()));
  for (const auto& flow : flows_) flow->Start(SendFlow::kEvents);
  express_->Start(ExpressOut::kEvents);
}

Sender::~Sender() {
  for (const auto& flow : flows_) flow->Stop();
  express_->Stop();
  for (const auto& flow : flows_) flow->Close(*pool_);
  express_->Close(*pool_);
}

bool Sender::IsEager(size_t bytes) const {
  const size_t limit = surroundings_.settings.eager_bytes;
  return bytes <= limit && express_->up() && !express_late_ &&
         unheard_bytes_ + bytes <= kMostUnheardBytes;
}

abi::Result Sender::Send(const void* data, size_t bytes, Request** request) {
  *request = nullptr;
  if (failed()) return Refuse();
  SendSlot* slot = nullptr;
  bool look = false;
  bool eager = false;
  {
    const std::scoped_lock lock(mutex_);
    slot = &SlotOf(next_);
    look = unheard_ > kUnheard || unheard_bytes_ > kUnheardBytes || slot->busy;
    if (held_ < kMostRequests && !slot->busy) {
      eager = IsEager(bytes);
      Begin(*slot, data, bytes, eager);
      *request = slot;
    }
  }
  if (look) express_->Look();
  if (*request == nullptr) return abi::kSuccess;
  if (eager) {
    const DataHeader header = {slot->number, 0, bytes, static_cast<uint32_t>(bytes)};
    const bool put = express_->Put(header, slot->data);
    // After it: the peer has the message by now, and the copy finds its bytes in the cache.
    slot->copy.assign(slot->data, slot->data + bytes);
    const std::scoped_lock lock(mutex_);
    if (!put) OweAgain(slot->number, 0);
    UseCopy(*slot);
    if (put) return abi::kSuccess;
  }
  WakeSome();
  return abi::kSuccess;
}

void Sender::Begin(SendSlot& slot, const void* data, size_t bytes, bool eager) {
  slot.number = next_++;
  slot.busy = true;
  slot.held = true;
  slot.eager = eager;
  slot.total = bytes;
  slot.cut = 0;
  slot.open = 0;
  slot.chunks.clear();
  slot.data = static_cast<const std::byte*>(data);
  slot.complete.store(false, std::memory_order_relaxed);
  if (!eager) {
    pending_ += bytes + 1;  // an empty message is work, too
  } else {
    slot.cut = bytes;
    slot.open = 1;
    slot.chunks.push_back({.offset = 0, .length = static_cast<uint32_t>(bytes)});
    ++counters_.eager;
    if (unheard_ == 0) unheard_since_ns_ = NowNs();
    ++unheard_;
    unheard_bytes_ += bytes;
    if (!spare_.empty()) {
      slot.copy = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  depth_.Begun(++held_);
  ++counters_.requests;
}

// An eager message is there twice, and the application's bytes are its own again: but for the flow
// that took them after the express flow's death, in the moment before the copy was there.
void Sender::UseCopy(SendSlot& slot) {
  if (slot.pins != 0) return;
  slot.data = slot.copy.data();
  slot.complete.store(true, std::memory_order_release);
}

abi::Result Sender::Test(Request* request, bool* done, size_t* bytes) {
  auto* const slot = static_cast<SendSlot*>(request);
  *done = false;
  if (!slot->complete.load(std::memory_order_acquire)) {
    if (!failed()) return abi::kSuccess;
    const std::scoped_lock lock(mutex_);
    // Not before the last flow has let go of the buffer.
    return slot->pins == 0 ? error_.load() : abi::kSuccess;
  }
  const std::scoped_lock lock(mutex_);
  *done = true;
  if (bytes != nullptr) *bytes = slot->total;
  slot->held = false;
  --held_;
  ++counters_.messages;
  counters_.bytes += slot->total;
  if (slot->open == 0 && slot->pins == 0) Free(*slot);
  return abi::kSuccess;
}

SendSlot* Sender::Find(uint64_t number) {
  SendSlot& slot = SlotOf(number);
  return slot.busy && slot.number == number ? &slot : nullptr;
}

std::optional<Sender::Taken> Sender::Take(SendFlow& flow, int64_t now_ns) {
  std::optional<Taken> taken;
  {
    const std::scoped_lock lock(mutex_);
    if (failed()) return std::nullopt;
    taken = TakeOwed();
    if (!taken) taken = TakeUncut(flow);
    if (!taken && flow.idle()) taken = TakeLate(now_ns);
    if (!taken) return std::nullopt;
    if (owing_ == 1) progress_ns_ = now_ns;
    taken->frame.mark = flow.Begin(now_ns, taken->frame.length, !pending());
    SendSlot& slot = SlotOf(taken->frame.number);
    slot.chunks[taken->frame.chunk].due_ns = flow.DueNs(taken->frame.mark);
  }
  if (pending()) WakeSome();
  return taken;
}

std::optional<Sender::Taken> Sender::TakeOwed() {
  while (!due_again_.empty()) {
    const Due due = due_again_.front();
    due_again_.pop_front();
    pending_ -= due.length + 1;
    SendSlot* const slot = Find(due.number);
    if (slot == nullptr || slot->chunks[due.chunk].acknowledged) continue;
    ++counters_.sent_again;
    return Give(*slot, due.chunk);
  }
  return std::nullopt;
}

std::optional<Sender::Taken> Sender::TakeUncut(SendFlow& flow) {
  for (; uncut_ < next_; ++uncut_) {
    SendSlot* const slot = Find(uncut_);
    if (slot == nullptr || (slot->cut == slot->total && !slot->chunks.empty())) continue;
    Rates rates;
    for (const auto& each : flows_) {
      const double rate = each->up() ? each->rate() : 0;
      rates.together += rate;
      rates.fastest = std::max(rates.fastest, rate);
    }
    flow.SetFastest(rates.fastest);
    const uint64_t left = slot->total - slot->cut;
    const uint64_t wanted = ChunkFor(flow.allowed(), rates, pending_.load(), Granule(slot->total));
    const uint64_t length = std::min({left, wanted, uint64_t{kLongestChunk}});
    slot->chunks.push_back({.offset = slot->cut, .length = static_cast<uint32_t>(length)});
    slot->cut += length;
    ++slot->open;
    pending_ -= length + (slot->cut == slot->total ? 1 : 0);
    return Give(*slot, static_cast<uint32_t>(slot->chunks.size() - 1));
  }
  return std::nullopt;
}

std::optional<Sender::Taken> Sender::TakeLate(int64_t now_ns) {
  uint64_t left = kLateWindow;
  for (uint64_t number = oldest_; number < next_ && left != 0; ++number) {
    SendSlot* const slot = Find(number);
    // Of those nobody may look for acknowledgements while the application waits for a late one.
    if (slot == nullptr || slot->eager) continue;
    --left;
    for (uint32_t i = 0; i < slot->chunks.size(); ++i) {
      const Chunk& chunk = slot->chunks[i];
      if (chunk.acknowledged || chunk.copies >= kMostCopies || now_ns < chunk.due_ns) continue;
      ++counters_.sent_twice;
      return Give(*slot, i);
    }
  }
  return std::nullopt;
}

Sender::Taken Sender::Give(SendSlot& slot, uint32_t number) {
  Chunk& chunk = slot.chunks[number];
  ++chunk.copies;
  ++slot.pins;
  ++owing_;
  ++counters_.chunks;
  return {.frame = {.number = slot.number, .chunk = number, .length = chunk.length, .mark = {}},
          .header = {slot.number, chunk.offset, slot.total, chunk.length},
          .data = slot.data + chunk.offset,
          .again = chunk.copies > 1};
}

void Sender::Written(const Frame& frame) {
  const std::scoped_lock lock(mutex_);
  SendSlot& slot = SlotOf(frame.number);
  // That somebody still reads it was told with its last acknowledgement.
  if (--slot.pins == 0) Settle(slot);
}

bool Sender::WantedBack(const Frame& frame) {
  const std::scoped_lock lock(mutex_);
  const SendSlot& slot = SlotOf(frame.number);
  return slot.cut == slot.total && slot.open == 0;
}

void Sender::Acknowledged(std::span<const Frame> frames, int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  progress_ns_ = now_ns;
  for (const Frame& frame : frames) {
    --owing_;
    AcknowledgeChunk(frame.number, frame.chunk);
  }
}

void Sender::AcknowledgedExpress(std::span<const uint64_t> numbers, int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  progress_ns_ = now_ns;
  for (const uint64_t number : numbers) AcknowledgeChunk(number, 0);
  if (unheard_ != 0) unheard_since_ns_ = now_ns;
  express_late_ = false;
}

void Sender::AcknowledgeChunk(uint64_t number, uint32_t chunk) {
  SendSlot* const slot = Find(number);
  // A copy that came second may be acknowledged when its request is long done.
  if (slot == nullptr || slot->chunks[chunk].acknowledged) return;
  slot->chunks[chunk].acknowledged = true;
  --slot->open;
  Settle(*slot);
}

void Sender::Settle(SendSlot& slot) {
  if (slot.cut != slot.total || slot.open != 0 || slot.chunks.empty()) return;
  if (slot.pins != 0) {
    ++reclaims_;
    WakeAll();
    return;
  }
  slot.complete.store(true, std::memory_order_release);
  if (!slot.held) Free(slot);
}

void Sender::Free(SendSlot& slot) {
  if (slot.eager) {
    if (--unheard_ == 0) unheard_since_ns_ = INT64_MAX;
    unheard_bytes_ -= slot.total;
    spare_.push_back(std::move(slot.copy));
  }
  slot.busy = false;
  while (oldest_ < next_ && !SlotOf(oldest_).busy) ++oldest_;
}

void Sender::Owed(std::span<const Frame> frames) {
  {
    const std::scoped_lock lock(mutex_);
    for (const Frame& frame : frames) {
      --owing_;
      OweAgain(frame.number, frame.chunk);
    }
  }
  WakeSome();
}

void Sender::ExpressIsLate() {
  {
    const std::scoped_lock lock(mutex_);
    if (express_late_.exchange(true)) return;
    for (uint64_t number = oldest_; number < next_; ++number) {
      const SendSlot* const slot = Find(number);
      if (slot != nullptr && slot->eager && slot->chunks[0].copies == 0) OweAgain(number, 0);
    }
  }
  WakeSome();
}

void Sender::OwedExpress(std::span<const uint64_t> numbers) {
  {
    const std::scoped_lock lock(mutex_);
    express_late_ = false;
    for (const uint64_t number : numbers) OweAgain(number, 0);
  }
  WakeSome();
}

void Sender::OweAgain(uint64_t number, uint32_t chunk) {
  SendSlot* const slot = Find(number);
  if (slot == nullptr || slot->chunks[chunk].acknowledged) return;
  const uint32_t length = slot->chunks[chunk].length;
  due_again_.push_back({number, chunk, length});
  pending_ += length + 1;
}

void Sender::WakeSome() {
  uint64_t wanted = 1 + pending_.load() / kBytesAThread;
  SendFlow& first = *flows_.front();
  if (wanted == 1 && first.free()) {
    // What a lookout sends a lookout of the peer reads.
    if (first.worker().Rely(kMostForLookout)) return;
    if (first.worker().asleep()) {
      first.worker().Wake();
      return;
    }
  }
  for (const auto& flow : flows_) {
    if (flow->free() && flow->worker().Rely(1) && --wanted == 0) return;
  }
  int woken = 0;
  for (const auto& flow : flows_) {
    if (!flow->free() || !flow->worker().asleep()) continue;
    flow->worker().Wake();
    if (++woken == 2 || --wanted == 0) return;
  }
}

void Sender::WakeAll() {
  for (const auto& flow : flows_) flow->worker().Wake();
}

void Sender::FlowsChanged(int64_t now_ns, bool gone, const std::string& why) {
  bool up = express_->up();
  for (const auto& flow : flows_) up |= flow->up();
  const std::scoped_lock lock(mutex_);
  if (!why.empty()) down_why_ = why;
  if (up) {
    all_down_ns_ = 0;
    return;
  }
  if (all_down_ns_ == 0) all_down_ns_ = now_ns;
  if (gone) Fail(abi::kRemoteError, down_why_);
}

void Sender::Tick(int64_t now_ns) {
  stats_.Tick(now_ns);
  const std::scoped_lock lock(mutex_);
  if (failed()) return;
  if (all_down_ns_ != 0 && now_ns - all_down_ns_ > kAllDownNs) {
    Fail(abi::kRemoteError, "no flow for 10 s: " + down_why_);
    return;
  }
  const int64_t limit_ns = surroundings_.settings.timeout_s * kNsPerSecond;
  if (owing_ != 0 && limit_ns != 0 && now_ns - progress_ns_ > limit_ns) {
    Fail(abi::kRemoteError,
         "nothing was delivered for " + std::to_string(surroundings_.settings.timeout_s) + " s");
  }
}

// With the lock held.
void Sender::Fail(abi::Result result, const std::string& why) {
  if (failed()) return;
  uint64_t waited_for = 0;
  for (const SendSlot& slot : slots_) {
    if (slot.busy && slot.held && !slot.complete) waited_for += slot.total;
  }
  // Else what NCCL believes to have arrived.
  const uint64_t bytes = waited_for != 0 ? waited_for : unheard_bytes_;
  failure_ = "sending to " + peer_ + " on " + device_ +
             (waited_for != 0 ? " failed with " : " ended with ") + std::to_string(bytes) +
             " bytes outstanding: " + why;
  // A peer that ends when nobody waits for anything has only been quicker than we.
  if (waited_for != 0) {
    surroundings_.log.Warn(std::exchange(failure_, {}));
  } else {
    surroundings_.log.Info(failure_);
  }
  error_ = result;
  WakeAll();
}

// What was not worth a warning until somebody wants to go on.
abi::Result Sender::Refuse() {
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) surroundings_.log.Warn(std::exchange(failure_, {}));
  return error_;
}

}  // namespace nccltune::net
