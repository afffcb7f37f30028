// SPDX-License-Identifier: Apache-2.0
#include "net/sender.h"

#include <algorithm>
#include <utility>

#include "net/clock.h"
#include "net/send_flow.h"

namespace nccltune::net {
namespace {

using Kind = Pool::Kind;
using Role = Pool::Role;

// If more than this many eager (small) messages, or bytes of them, are unacknowledged, the
// application's thread reads acknowledgements when it sends.
constexpr size_t kPollAcksMessages = 64;
constexpr size_t kPollAcksBytes = 256 << 10;
// Limit of unacknowledged bytes of eager messages. A message that would exceed this limit takes
// bulk flows.
constexpr size_t kMostUnackedEagerBytes = 512 << 10;
// Pending bytes for which one thread is enough. Waking another thread costs some microseconds.
constexpr uint64_t kBytesAThread = 128 << 10;
// Messages that may queue for one spinning thread. Waiting behind two other messages is faster than
// waking a thread.
constexpr int kMostForSpinning = 3;
// Only this many of the oldest requests are searched for late chunks.
constexpr uint64_t kLateWindow = 4;
// Limit of copies of one chunk. A copy is sent only if the previous one is late. Several may be
// late, because flows that stall may share one NIC.
constexpr uint8_t kMostCopies = 8;

}  // namespace

Sender::Sender(Resources resources)
    : context_(resources.context),
      pool_(std::move(resources.pool)),
      stats_(StatsRole::kSends, context_.log, resources.device,
             resources.dialers.front().peer().Name(), resources.dialers.size()),
      slots_(kSlots),
      progress_ns_(NowNs()),
      failure_(context_.log,
               "sending to " + resources.dialers.front().peer().Name() + " on " + resources.device,
               context_.settings.down_timeout_s) {
  for (SendSlot& slot : slots_) slot.sender = this;
  for (size_t i = 1; i < resources.dialers.size(); ++i) {
    auto worker = pool_->Pick(Role::kSend, i == 1 ? Kind::kSpinning : Kind::kOther);
    flows_.push_back(
        std::make_unique<SendFlow>(*this, std::move(worker), std::move(resources.dialers[i])));
  }
  express_ = std::make_unique<ExpressSendFlow>(*this, pool_->Pick(Role::kSend, Kind::kOther),
                                               std::move(resources.dialers.front()));
  // Reserve memory now: Free must not allocate.
  spare_.reserve(kSlots);
}

int Sender::Start() {
  for (const auto& flow : flows_) {
    if (const int error = flow->Start(SendFlow::kEvents); error != 0) return error;
  }
  return express_->Start(ExpressSendFlow::kEvents);
}

Sender::~Sender() {
  for (const auto& flow : flows_) flow->Stop();
  express_->Stop();
  for (const auto& flow : flows_) flow->Close(*pool_);
  express_->Close(*pool_);
}

bool Sender::IsEager(size_t bytes) const {
  const size_t limit = context_.settings.eager_bytes;
  return bytes <= limit && express_->up() && !express_late_ &&
         unacked_eager_bytes_ + bytes <= kMostUnackedEagerBytes;
}

abi::Result Sender::Send(const void* data, size_t bytes, TransferRequest** request) {
  *request = nullptr;
  if (failed()) return Refuse();
  SendSlot* slot = nullptr;
  bool look = false;
  bool eager = false;
  {
    const std::scoped_lock lock(mutex_);
    slot = &SlotOf(next_);
    look =
        unacked_eager_ > kPollAcksMessages || unacked_eager_bytes_ > kPollAcksBytes || slot->busy;
    if (held_ < kMostRequests && !slot->busy) {
      eager = IsEager(bytes);
      Begin(*slot, data, bytes, eager);
      *request = slot;
    }
  }
  if (look) express_->Poll();
  if (*request == nullptr) return abi::kSuccess;
  if (eager) {
    const DataHeader header = {slot->number, 0, bytes, static_cast<uint32_t>(bytes)};
    const bool put = express_->Put(header, slot->data);
    // Copy after sending: the copy does not delay the message, and the message's bytes are in the
    // cache.
    slot->copy.assign(slot->data, slot->data + bytes);
    const std::scoped_lock lock(mutex_);
    if (!put) RequeueChunk(slot->number, 0);
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
    pending_ += bytes + 1;  // plus one, so that an empty message counts as work
  } else {
    slot.cut = bytes;
    slot.open = 1;
    slot.chunks.push_back({.offset = 0, .length = static_cast<uint32_t>(bytes)});
    ++counters_.eager;
    if (unacked_eager_ == 0) unacked_eager_since_ns_ = NowNs();
    ++unacked_eager_;
    unacked_eager_bytes_ += bytes;
    if (!spare_.empty()) {
      slot.copy = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  depth_.RecordHeld(++held_);
  ++counters_.requests;
}

// Makes an eager message use its own copy and completes the request, because the application's
// buffer is not needed any more. Does nothing if a bulk flow reads that buffer: after the death of
// the express flow, a bulk flow may take the message before the copy is made.
void Sender::UseCopy(SendSlot& slot) {
  if (slot.pins != 0) return;
  slot.data = slot.copy.data();
  slot.complete.store(true, std::memory_order_release);
}

abi::Result Sender::Test(TransferRequest* request, bool* done, size_t* bytes) {
  auto* const slot = static_cast<SendSlot*>(request);
  *done = false;
  if (!slot->complete.load(std::memory_order_acquire)) {
    if (!failed()) return abi::kSuccess;
    const std::scoped_lock lock(mutex_);
    // Report the failure only after the last flow has released the buffer.
    return slot->pins == 0 ? failure_.result() : abi::kSuccess;
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

std::optional<Sender::AssignedChunk> Sender::Take(SendFlow& flow, int64_t now_ns) {
  std::optional<AssignedChunk> taken;
  {
    const std::scoped_lock lock(mutex_);
    if (failed()) return std::nullopt;
    taken = TakeRequeued();
    if (!taken) taken = TakeUncut(flow);
    if (!taken && flow.idle()) taken = TakeLate(now_ns);
    if (!taken) return std::nullopt;
    if (unacked_frames_ == 1) progress_ns_ = now_ns;
    taken->frame.mark = flow.Begin(now_ns, taken->frame.length, !pending());
    SendSlot& slot = SlotOf(taken->frame.number);
    slot.chunks[taken->frame.chunk].due_ns = flow.DueNs(taken->frame.mark);
  }
  if (pending()) WakeSome();
  return taken;
}

std::optional<Sender::AssignedChunk> Sender::TakeRequeued() {
  while (!requeued_.empty()) {
    const RequeuedChunk due = requeued_.front();
    requeued_.pop_front();
    pending_ -= due.length + 1;
    SendSlot* const slot = Find(due.number);
    if (slot == nullptr || slot->chunks[due.chunk].acknowledged) continue;
    ++counters_.sent_again;
    return Give(*slot, due.chunk);
  }
  return std::nullopt;
}

std::optional<Sender::AssignedChunk> Sender::TakeUncut(SendFlow& flow) {
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

std::optional<Sender::AssignedChunk> Sender::TakeLate(int64_t now_ns) {
  uint64_t left = kLateWindow;
  for (uint64_t number = oldest_; number < next_ && left != 0; ++number) {
    SendSlot* const slot = Find(number);
    // Skip eager messages: they may be unacknowledged only because no thread reads the
    // acknowledgements.
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

Sender::AssignedChunk Sender::Give(SendSlot& slot, uint32_t number) {
  Chunk& chunk = slot.chunks[number];
  ++chunk.copies;
  ++slot.pins;
  ++unacked_frames_;
  ++counters_.chunks;
  return {.frame = {.number = slot.number, .chunk = number, .length = chunk.length, .mark = {}},
          .header = {slot.number, chunk.offset, slot.total, chunk.length},
          .data = slot.data + chunk.offset,
          .resent = chunk.copies > 1};
}

void Sender::Written(const FlowChunk& frame) {
  const std::scoped_lock lock(mutex_);
  SendSlot& slot = SlotOf(frame.number);
  // Do not call CompleteIfDone while frames are pinned: it would ask the flows to release the
  // buffer, as it already did at the last acknowledgement.
  if (--slot.pins == 0) CompleteIfDone(slot);
}

bool Sender::IsBufferWanted(const FlowChunk& frame) {
  const std::scoped_lock lock(mutex_);
  const SendSlot& slot = SlotOf(frame.number);
  return slot.cut == slot.total && slot.open == 0;
}

void Sender::Acknowledged(std::span<const FlowChunk> frames, int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  progress_ns_ = now_ns;
  for (const FlowChunk& frame : frames) {
    --unacked_frames_;
    AcknowledgeChunk(frame.number, frame.chunk);
  }
}

void Sender::AcknowledgedExpress(std::span<const uint64_t> numbers, int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  progress_ns_ = now_ns;
  for (const uint64_t number : numbers) AcknowledgeChunk(number, 0);
  if (unacked_eager_ != 0) unacked_eager_since_ns_ = now_ns;
  express_late_ = false;
}

void Sender::AcknowledgeChunk(uint64_t number, uint32_t chunk) {
  SendSlot* const slot = Find(number);
  // The second copy of a chunk may be acknowledged after its request has completed.
  if (slot == nullptr || slot->chunks[chunk].acknowledged) return;
  slot->chunks[chunk].acknowledged = true;
  --slot->open;
  CompleteIfDone(*slot);
}

void Sender::CompleteIfDone(SendSlot& slot) {
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
    if (--unacked_eager_ == 0) unacked_eager_since_ns_ = INT64_MAX;
    unacked_eager_bytes_ -= slot.total;
    spare_.push_back(std::move(slot.copy));
  }
  slot.busy = false;
  while (oldest_ < next_ && !SlotOf(oldest_).busy) ++oldest_;
}

void Sender::Requeue(const std::deque<FlowChunk>& frames) {
  {
    const std::scoped_lock lock(mutex_);
    for (const FlowChunk& frame : frames) {
      --unacked_frames_;
      RequeueChunk(frame.number, frame.chunk);
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
      if (slot != nullptr && slot->eager && slot->chunks[0].copies == 0) RequeueChunk(number, 0);
    }
  }
  WakeSome();
}

void Sender::RequeueExpress(const std::deque<uint64_t>& numbers) {
  {
    const std::scoped_lock lock(mutex_);
    express_late_ = false;
    for (const uint64_t number : numbers) RequeueChunk(number, 0);
  }
  WakeSome();
}

void Sender::RequeueChunk(uint64_t number, uint32_t chunk) {
  // A failed connection sends nothing again.
  if (failed()) return;
  SendSlot* const slot = Find(number);
  if (slot == nullptr || slot->chunks[chunk].acknowledged) return;
  const uint32_t length = slot->chunks[chunk].length;
  requeued_.push_back({number, chunk, length});
  pending_ += length + 1;
}

void Sender::WakeSome() {
  uint64_t wanted = 1 + pending_.load() / kBytesAThread;
  SendFlow& first = *flows_.front();
  if (wanted == 1 && first.free()) {
    // Prefer the first flow: spinning threads serve it, here and at the peer.
    if (first.worker().TryAssign(kMostForSpinning)) return;
    if (first.worker().asleep()) {
      first.worker().Wake();
      return;
    }
  }
  for (const auto& flow : flows_) {
    if (flow->free() && flow->worker().TryAssign(1) && --wanted == 0) return;
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
  express_->worker().Wake();
}

void Sender::FlowsChanged(int64_t now_ns, bool gone, const SocketEnd& end) {
  bool up = express_->up();
  for (const auto& flow : flows_) up |= flow->up();
  const std::scoped_lock lock(mutex_);
  failure_.FlowsChanged(now_ns, up, end);
  if (!up && gone) Fail(abi::kRemoteError, failure_.why_down());
}

void Sender::Tick(int64_t now_ns) {
  stats_.Tick(now_ns);
  const std::scoped_lock lock(mutex_);
  if (failed()) return;
  if (const std::string why = failure_.NoFlow(now_ns); !why.empty()) {
    Fail(abi::kRemoteError, why);
    return;
  }
  const int64_t limit_ns = context_.settings.timeout_s * kNsPerSecond;
  if (unacked_frames_ != 0 && limit_ns != 0 && now_ns - progress_ns_ > limit_ns) {
    Fail(abi::kRemoteError,
         "nothing was delivered for " + std::to_string(context_.settings.timeout_s) + " s");
  }
}

void Sender::FailByException(const char* what) noexcept {
  const std::scoped_lock lock(mutex_);
  Fail(abi::kSystemError, what);
}

// The caller holds `mutex_`.
void Sender::Fail(abi::Result result, std::string_view why) noexcept {
  if (failed()) return;
  uint64_t waited_for = 0;
  for (const SendSlot& slot : slots_) {
    if (slot.busy && slot.held && !slot.complete) waited_for += slot.total;
  }
  const bool waiting = waited_for != 0;
  // If NCCL waits for no request, count the bytes of eager messages that are complete for NCCL but
  // not acknowledged.
  failure_.Set(result, why, waiting, waiting ? waited_for : unacked_eager_bytes_);
  WakeAll();
}

abi::Result Sender::Refuse() {
  const std::scoped_lock lock(mutex_);
  return failure_.Refuse();
}

}  // namespace nccltune::net
