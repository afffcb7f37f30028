// SPDX-License-Identifier: Apache-2.0
#include "net/send_flow.h"

#include <utility>

#include "common/contain.h"
#include "common/text.h"
#include "net/clock.h"
#include "net/descriptors.h"

namespace nccltune::net {
namespace {

constexpr int64_t kFirstPauseNs = 100 * kNsPerMs;
constexpr int64_t kLongestPauseNs = 2 * kNsPerSecond;
// Frames that a flow writes before its thread serves other flows.
constexpr int kFramesATurn = 4;
// Interval at which an idle flow searches for chunks that are late on another flow.
constexpr int64_t kLateCheckNs = kNsPerMs;
// Interval at which a flow that waits for data, acknowledgements or kernel reports is checked.
constexpr int64_t kAckPollNs = 2 * kNsPerMs;
// A chunk is late after kPatience times its expected time, but at least after kLeastPatienceNs,
// because a thread may be delayed that long.
constexpr int64_t kPatience = 3;
constexpr int64_t kLeastPatienceNs = 4 * kNsPerMs;
// Interval of the checks for a request whose buffer only the kernel still uses. If two checks in a
// row find the same request, the flow is ended: then the kernel releases the buffer.
constexpr int64_t kKernelHoldCheckNs = 20 * kNsPerMs;
// A warning is logged if the kernel holds data of a dead flow for this long. A network device
// empties its queue within milliseconds.
constexpr int64_t kDyingTooLongNs = 10 * kNsPerSecond;
// A chunk is late after this time if its flow has delivered nothing yet: the path may be dead.
constexpr int64_t kFirstPatienceNs = 200 * kNsPerMs;
// Small messages without an acknowledgement for this long are also sent on bulk flows. A receiver
// whose application stops polling acknowledges earlier, after half a second.
constexpr int64_t kEagerAckTimeoutNs = 2 * kNsPerSecond;

// Returns a frame for functions that use only its request number.
FlowChunk FrameOf(uint64_t request) {
  FlowChunk frame;
  frame.number = request;
  return frame;
}

}  // namespace

bool SendFlowBase::Work(int64_t now_ns) {
  if (!Tick(now_ns)) return false;
  return up_ ? WorkUp(now_ns) : ComeUp(now_ns);
}

int64_t SendFlowBase::NextDownNs() const {
  // epoll reports events of the dialer's socket, but the dialer's timeouts must be polled.
  return dialing_ ? NowNs() + kNsPerSecond : dial_at_ns_;
}

void SendFlowBase::Down(int64_t now_ns, bool bye, const SocketEnd& end) {
  up_ = false;
  WentDown();
  socket_.Close();
  pause_ns_ = kFirstPauseNs;
  // Make the first attempt to reconnect at once. If no socket listens at the peer's address any
  // more, the peer has ended.
  dial_at_ns_ = now_ns;
  dialing_ = false;
  CountEnd(!bye && !owner_.failed());
  owner_.FlowsChanged(now_ns, false, end);
}

bool SendFlowBase::ComeUp(int64_t now_ns) {
  if (!dialing_) {
    if (now_ns < dial_at_ns_) return false;
    dialer_.Start(now_ns);
    stats_.Dialled();
    dialing_ = true;
    epoll_events_ = 0;
    if (dialer_.fd() >= 0) {
      const int error = Watch(dialer_.fd(), EPOLLIN | EPOLLOUT);
      if (error != 0) {
        // Without epoll, the peer's answer would not be noticed.
        dialer_.Take().Close();
        DialFailed(now_ns, false, {"epoll_ctl: " + ErrorWords(error)});
        return false;
      }
    }
    if (dialer_.shortage() != 0) {
      ReportShortage(owner_.context().log, "connect", dialer_.shortage());
    }
  }
  const Dialer::State state = dialer_.Step(now_ns);
  if (state == Dialer::State::kWorking) return false;
  if (state == Dialer::State::kReady) {
    dialing_ = false;
    socket_ = dialer_.Take();
    path_.Reset();
    up_ = true;
    // Read and write once without an event: the socket may have ended already, and epoll would not
    // report that again.
    epoll_events_ |= EPOLLIN | EPOLLOUT;
    ++owner_.counters().flow_returns;
    stats_.CameUp(socket_.fd());
    owner_.FlowsChanged(now_ns, false, {});
    return true;
  }
  const bool gone = state == Dialer::State::kRefused || state == Dialer::State::kRejected;
  DialFailed(now_ns, gone, dialer_.end());
  return false;
}

void SendFlowBase::DialFailed(int64_t now_ns, bool gone, const SocketEnd& end) {
  dialing_ = false;
  dial_at_ns_ = now_ns + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  owner_.FlowsChanged(now_ns, gone, end);
}

// Bulk flows, for large messages

SendFlow::SendFlow(Sender& sender, std::shared_ptr<PoolThread> worker, Dialer dialer)
    : SendFlowBase(sender, std::move(worker), std::move(dialer)),
      zero_copy_(sender.context().settings.zero_copy, sender.counters()) {}

FlowRate::Mark SendFlow::Begin(int64_t now_ns, uint64_t length, bool app_limited) {
  const FlowRate::Mark mark = rate_.Sent(now_ns, undelivered_, app_limited);
  undelivered_ += length;
  stats_.SetUndelivered(undelivered_);
  return mark;
}

int64_t SendFlow::DueNs(const FlowRate::Mark& mark) const {
  const int64_t expected = rate_.ExpectedBy(mark, undelivered_);
  if (expected == INT64_MAX) return mark.sent_ns + kFirstPatienceNs;
  return mark.sent_ns + std::max(kPatience * (expected - mark.sent_ns), kLeastPatienceNs);
}

bool SendFlow::Work(int64_t now_ns) {
  bool worked = false;
  if (zero_copy_.dying()) {
    released_.clear();
    worked = zero_copy_.ReadDyingReports(&released_);
    Released(released_);
    WarnIfDyingTooLong(now_ns);
  }
  return SendFlowBase::Work(now_ns) || worked;
}

int64_t SendFlow::NextNs() const {
  return std::min(SendFlowBase::NextNs(), zero_copy_.dying() ? NowNs() + kAckPollNs : INT64_MAX);
}

bool SendFlow::WorkUp(int64_t now_ns) {
  bool worked = false;
  if (zero_copy_.outstanding()) worked = ReadKernelReports(now_ns);
  if (up() && (epoll_events_ & (EPOLLIN | kGone)) != 0) worked |= ReadReverseFrames(now_ns);
  if (!up()) return true;
  if ((epoll_events_ & EPOLLOUT) != 0) writable_ = true;
  epoll_events_ = 0;
  if (writing_ && pinned_ && reclaims_ != owner_.reclaims()) ReleaseBuffer();
  for (int i = 0; i < kFramesATurn && writable_; ++i) {
    if (!writing_ && !Next(now_ns)) break;
    worked = true;
    if (!Write(now_ns)) break;
  }
  if (worked) full_ = !writable_ || undelivered_ >= rate_.Cap(fastest_);
  return worked;
}

int64_t SendFlow::NextUpNs() const {
  const bool waits = owner_.has_unacked_frames() || owner_.pending() || zero_copy_.outstanding();
  return waits ? NowNs() + kAckPollNs : INT64_MAX;
}

bool SendFlow::ReadReverseFrames(int64_t now_ns) {
  SocketEnd end;
  bool something = false;
  uint64_t acknowledged = acknowledged_;
  bool bye = false;
  // The peer cannot have read a frame that is not completely written.
  const uint64_t written = begun_ - (writing_ ? 1 : 0);
  const bool well = reverse_frames_.Read(
      socket_.fd(), (epoll_events_ & kGone) != 0, &end, &something, [&](const ReverseFrame& frame) {
        if (frame.type == FrameType::kWaiting) owner_.PeerWaits(now_ns);
        bye |= frame.type == FrameType::kBye;
        if (frame.type != FrameType::kAck) return true;
        if (frame.value < acknowledged || frame.value > written) {
          return false;
        }
        acknowledged = frame.value;
        return true;
      });
  if (acknowledged != acknowledged_) Acknowledge(acknowledged, now_ns);
  if (!well || bye) Down(now_ns, bye, bye ? SocketEnd{"the peer has closed the connection"} : end);
  return something;
}

bool SendFlow::Acknowledge(uint64_t frames, int64_t now_ns) {
  const uint64_t count = frames - acknowledged_;
  acknowledged_ = frames;
  const std::vector<FlowChunk> done(frames_.begin(),
                                    frames_.begin() + static_cast<ptrdiff_t>(count));
  frames_.erase(frames_.begin(), frames_.begin() + static_cast<ptrdiff_t>(count));
  uint64_t bytes = 0;
  for (const FlowChunk& frame : done) bytes += frame.length;
  undelivered_ -= bytes;
  const PathFacts path = ReadPathFacts(socket_.fd()).value_or(PathFacts());
  rate_.Acknowledged(now_ns, bytes, done.back().mark, path.busy_ns);
  rate_.SetPathRoundTrip(path.shortest_round_trip_ns);
  shared_rate_.store(rate_.rate(), std::memory_order_relaxed);
  stats_.AddTransferred(bytes, count);
  stats_.SetUndelivered(undelivered_);
  stats_.SetRate(rate_.rate());
  owner_.Acknowledged(done, now_ns);
  return true;
}

bool SendFlow::Next(int64_t now_ns) {
  const bool idle = undelivered_ == 0;
  if (owner_.pending()) {
    if (undelivered_ >= rate_.Cap(fastest_)) return false;
  } else {
    if (!idle || !owner_.has_unacked_frames() || now_ns < late_check_ns_) return false;
    late_check_ns_ = now_ns + kLateCheckNs;
  }
  // Read the counter before Take: another copy of the chunk may be acknowledged at any time. WorkUp
  // notices that by a change of the counter.
  const uint64_t reclaims = owner_.reclaims();
  // Allocate the frame before Take, because Take pins the chunk and nothing may throw afterwards.
  frames_.emplace_back();
  const std::optional<Sender::AssignedChunk> taken = TakeChunk(now_ns);
  if (!taken) return false;
  frames_.back() = taken->frame;
  if (taken->resent) stats_.TookOver();
  ++begun_;
  header_ = Encode(taken->header);
  header_left_ = header_.size();
  body_ = taken->data;
  body_left_ = taken->frame.length;
  writing_ = true;
  pinned_ = true;
  reclaims_ = reclaims;
  return true;
}

// Takes a chunk from the sender. The caller has appended an empty frame to `frames_`. Removes that
// frame if there is no chunk, or on an exception.
std::optional<Sender::AssignedChunk> SendFlow::TakeChunk(int64_t now_ns) {
  std::optional<Sender::AssignedChunk> taken;
  try {
    taken = owner_.Take(*this, now_ns);
  } catch (...) {
    frames_.pop_back();
    throw;
  }
  if (!taken) frames_.pop_back();
  return taken;
}

IoResult SendFlow::WriteFrame() {
  std::array<iovec, 2> parts = {{
      {header_.data() + (header_.size() - header_left_), header_left_},
      {const_cast<std::byte*>(body_), body_left_},
  }};
  const size_t first = header_left_ == 0 ? 1 : 0;
  if (!pinned_ || !zero_copy_.Wants(body_left_)) {
    return WriteSome(socket_.fd(), std::span(parts).subspan(first));
  }
  IoResult all;
  if (header_left_ != 0) {
    // Headers are always copied, because the next frame reuses the memory.
    all = WriteSome(socket_.fd(), {&parts[0], 1}, MSG_MORE);
    if (all.error != 0 || all.bytes != header_left_) return all;
  }
  std::span<const std::byte> body(body_, body_left_);
  while (!body.empty()) {
    std::optional<IoResult> sent;
    if (zero_copy_.Wants(body.size())) {
      sent = zero_copy_.Send(socket_.fd(), frames_.back().number, body);
    }
    const bool copied = !sent;
    iovec part = {const_cast<std::byte*>(body.data()), body.size()};
    if (copied) sent = WriteSome(socket_.fd(), {&part, 1});
    if (sent->would_block() && all.bytes != 0) break;
    if (sent->error != 0) return *sent;
    all.bytes += sent->bytes;
    body = body.subspan(sent->bytes);
    // Try again after a short send without a copy: it may have ended at a page that the kernel
    // cannot pin. A short send with a copy has filled the socket.
    if (copied) break;
  }
  return all;
}

// Writes the rest of the current frame. Returns false if nothing more can be written now, or if the
// flow has gone down.
bool SendFlow::Write(int64_t now_ns) {
  const IoResult moved = WriteFrame();
  if (moved.would_block()) {
    writable_ = false;
    return false;
  }
  if (moved.error != 0) {
    Down(now_ns, false, EndBy(moved.error));
    return false;
  }
  path_.Wrote();
  const size_t of_header = std::min(moved.bytes, header_left_);
  header_left_ -= of_header;
  body_ += moved.bytes - of_header;
  body_left_ -= moved.bytes - of_header;
  if (header_left_ != 0 || body_left_ != 0) {
    // The write was short, so the socket is full. epoll reports when the socket has room.
    writable_ = false;
    return false;
  }
  writing_ = false;
  if (pinned_) UnpinFrame();
  return true;
}

void SendFlow::UnpinFrame() {
  pinned_ = false;
  if (zero_copy_.Finish()) owner_.Written(frames_.back());
}

void SendFlow::Released(std::span<const uint64_t> requests) {
  for (const uint64_t request : requests) owner_.Written(FrameOf(request));
}

// Reads the kernel's reports of zero-copy sends. The reports arrive as a socket error (EPOLLERR)
// that does not end the flow.
bool SendFlow::ReadKernelReports(int64_t now_ns) {
  const bool look = now_ns >= held_check_ns_;
  if (!look && (epoll_events_ & EPOLLERR) == 0) return false;
  released_.clear();
  const bool something = zero_copy_.Reports(socket_.fd(), &released_);
  Released(released_);
  if (something && (epoll_events_ & (EPOLLHUP | EPOLLRDHUP)) == 0) {
    epoll_events_ &= ~uint32_t{EPOLLERR};
  }
  if (look) {
    held_check_ns_ = now_ns + kKernelHoldCheckNs;
    EndIfHeldTooLong(now_ns);
  }
  return something;
}

void SendFlow::EndIfHeldTooLong(int64_t now_ns) {
  std::optional<uint64_t> held = zero_copy_.oldest();
  if (held && !owner_.IsBufferWanted(FrameOf(*held))) held.reset();
  const bool again = held && held == held_;
  held_ = held;
  if (!again) return;
  zero_copy_.HeldTooLong(now_ns);
  Down(now_ns, false, {"the kernel held data that other flows had delivered"});
}

void SendFlow::WarnIfDyingTooLong(int64_t now_ns) {
  if (!zero_copy_.dying()) {
    dying_warned_ = false;
  } else if (now_ns - zero_copy_.dying_since_ns() > kDyingTooLongNs &&
             !std::exchange(dying_warned_, true)) {
    owner_.context().log.Warn(
        "the kernel has held data of a dead flow for more than 10 s, and requests wait for it; set "
        "NCCLTUNE_NET_ZEROCOPY=0 to avoid this");
  }
}

// Copies the rest of the current frame and releases the application's buffer. Does nothing until
// other flows have delivered all chunks of the request: only then does the application wait for
// this flow.
void SendFlow::ReleaseBuffer() {
  reclaims_ = owner_.reclaims();
  if (!owner_.IsBufferWanted(frames_.back())) return;
  copied_rest_.assign(body_, body_ + body_left_);
  body_ = copied_rest_.data();
  UnpinFrame();
}

void SendFlow::WentDown() {
  if (writing_ && pinned_) UnpinFrame();
  // A request stays incomplete while the kernel holds its buffer, even if other flows deliver the
  // request. So ask the kernel which buffers it has released.
  released_.clear();
  zero_copy_.Abandon(&socket_, NowNs(), &released_);
  Released(released_);
  held_.reset();
  undelivered_ = 0;
  acknowledged_ = 0;
  begun_ = 0;
  writing_ = false;
  writable_ = true;
  reverse_frames_ = ReverseFrameReader();
  rate_ = FlowRate();
  shared_rate_ = 0;
  full_ = false;
  path_.Reset();
  owner_.Requeue(frames_);
  frames_.clear();
}

void SendFlow::Close(Pool& pool) noexcept {
  // If memory runs out, the peer sees the stream end without a bye, and no thread waits for the
  // kernel's reports.
  Contain([&] { SendByeAndClose(pool); });
  if (zero_copy_.outstanding()) ZeroCopy::Disconnect(socket_.fd());
  socket_.Close();
}

void SendFlow::SendByeAndClose(Pool& pool) {
  released_.clear();
  if (zero_copy_.outstanding()) zero_copy_.Reports(socket_.fd(), &released_);
  // Requests with outstanding zero-copy sends are cancelled by the close. Their buffers may be
  // reused soon, so their bytes must not be sent any more.
  if (zero_copy_.outstanding()) zero_copy_.Abandon(&socket_, NowNs(), &released_);
  zero_copy_.AwaitDying();
  if (!socket_) return;
  if (!writing_) {
    pool.CloseGracefully(std::move(socket_), EncodeForwardBye());
    return;
  }
  // A bye cannot be sent after a part of a frame.
  if (pinned_) UnpinFrame();
}

// Express flow, for small messages

bool ExpressSendFlow::Put(const DataHeader& header, const std::byte* data) {
  const std::scoped_lock lock(mutex_);
  if (!up()) return false;
  numbers_.push_back(header.request);
  stats_.AddTransferred(header.length, 1);
  auto bytes = Encode(header);
  size_t written = 0;
  if (left_.empty()) {
    std::array<iovec, 2> parts = {
        {{bytes.data(), bytes.size()}, {const_cast<std::byte*>(data), header.length}}};
    const IoResult moved =
        WriteSome(socket_.fd(), std::span(parts).first(header.length == 0 ? 1 : 2));
    // Ignore an error here: epoll reports it to the pool thread, which resends all unacknowledged
    // messages.
    written = moved.bytes;
  }
  path_.Wrote();
  const size_t of_header = std::min(written, bytes.size());
  left_.insert(left_.end(), bytes.begin() + static_cast<ptrdiff_t>(of_header), bytes.end());
  left_.insert(left_.end(), data + (written - of_header), data + header.length);
  if (!left_.empty()) worker().Wake();
  return true;
}

void ExpressSendFlow::Poll() {
  const std::scoped_lock lock(mutex_);
  if (!up()) return;
  ReadReverseFrames(NowNs());
  if (!up()) worker().Wake();
}

int64_t ExpressSendFlow::NextNs() const {
  const std::scoped_lock lock(mutex_);
  return SendFlowBase::NextNs();
}

void ExpressSendFlow::Ready(uint32_t events) {
  const std::scoped_lock lock(mutex_);
  SendFlowBase::Ready(events);
  next_check_ns_ = 0;
}

bool ExpressSendFlow::Work(int64_t now_ns) {
  // Check without the lock: a spinning thread runs this check all the time, and the application's
  // thread needs the lock.
  if (up() && !owner_.failed() && now_ns < next_check_ns_) return false;
  next_check_ns_ = now_ns + kBetweenTicksNs;
  const std::scoped_lock lock(mutex_);
  const bool worked = SendFlowBase::Work(now_ns);
  // The flow has just come up, so its events must be handled at once.
  if (epoll_events_ != 0) next_check_ns_ = 0;
  return worked;
}

int64_t ExpressSendFlow::NextUpNs() const {
  return NowNs() + (owner_.express_late() ? kBetweenTicksNs : kEagerAckTimeoutNs / 2);
}

bool ExpressSendFlow::WorkUp(int64_t now_ns) {
  const bool unheard = owner_.unacked_eager_since_ns() < now_ns - kEagerAckTimeoutNs;
  if ((epoll_events_ & kGone) != 0 || unheard) ReadReverseFrames(now_ns);
  if (!up()) return true;
  if (unheard && owner_.unacked_eager_since_ns() < now_ns - kEagerAckTimeoutNs) {
    owner_.ExpressIsLate();
  }
  const bool tried = !left_.empty() && (epoll_events_ & EPOLLOUT) != 0;
  epoll_events_ = 0;
  return tried && Flush(now_ns);
}

bool ExpressSendFlow::Flush(int64_t now_ns) {
  iovec part = {left_.data(), left_.size()};
  const IoResult moved = WriteSome(socket_.fd(), {&part, 1});
  if (moved.error != 0 && !moved.would_block()) Down(now_ns, false, EndBy(moved.error));
  if (!up()) return true;
  path_.Wrote();
  left_.erase(left_.begin(), left_.begin() + static_cast<ptrdiff_t>(moved.bytes));
  return moved.bytes != 0;
}

bool ExpressSendFlow::ReadReverseFrames(int64_t now_ns) {
  SocketEnd end;
  bool something = false;
  bool bye = false;
  uint64_t acknowledged = acknowledged_;
  const bool well = reverse_frames_.Read(
      socket_.fd(), (epoll_events_ & kGone) != 0, &end, &something, [&](const ReverseFrame& frame) {
        bye |= frame.type == FrameType::kBye;
        if (frame.type != FrameType::kAck) return true;
        if (frame.value < acknowledged || frame.value - acknowledged_ > numbers_.size()) {
          return false;
        }
        acknowledged = frame.value;
        return true;
      });
  const auto count = static_cast<ptrdiff_t>(acknowledged - acknowledged_);
  acknowledged_ = acknowledged;
  const std::vector<uint64_t> done(numbers_.begin(), numbers_.begin() + count);
  numbers_.erase(numbers_.begin(), numbers_.begin() + count);
  if (!done.empty()) owner_.AcknowledgedExpress(done, now_ns);
  if (!well || bye) Down(now_ns, bye, bye ? SocketEnd{"the peer has closed the connection"} : end);
  return something;
}

void ExpressSendFlow::WentDown() {
  left_.clear();
  acknowledged_ = 0;
  reverse_frames_ = ReverseFrameReader();
  path_.Reset();
  owner_.RequeueExpress(numbers_);
  numbers_.clear();
}

void ExpressSendFlow::Close(Pool& pool) noexcept {
  const std::scoped_lock lock(mutex_);
  if (!socket_) return;
  // If memory runs out, the peer sees the stream end without a bye.
  Contain([&] {
    auto bye = EncodeForwardBye();
    left_.insert(left_.end(), bye.begin(), bye.end());
    pool.CloseGracefully(std::move(socket_), left_);
  });
  socket_.Close();
}

}  // namespace nccltune::net
