// SPDX-License-Identifier: Apache-2.0
#include "net/send_flow.h"

#include <utility>

#include "net/clock.h"

namespace nccltune::net {
namespace {

constexpr int64_t kFirstPauseNs = 100 * kNsPerMs;
constexpr int64_t kLongestPauseNs = 5 * kNsPerSecond;
// So many frames a turn, then the worker's other flows.
constexpr int kFramesATurn = 4;
// Between two looks of an idle flow for what is late on another one.
constexpr int64_t kLateLookNs = kNsPerMs;
// What only time tells of one flow, and of the connection.
constexpr int64_t kOwingNs = 2 * kNsPerMs;
constexpr int64_t kBetweenTicksNs = 100 * kNsPerMs;
// A chunk is late when it takes three times what it should, and more than a thread may be kept
// waiting.
constexpr int64_t kPatience = 3;
constexpr int64_t kLeastPatienceNs = 4 * kNsPerMs;
// A request that the kernel alone holds at two such looks is not waited for any longer: the
// flow's end makes the kernel let go.
constexpr int64_t kHeldLookNs = 20 * kNsPerMs;
// The queue of a network device is sent within milliseconds.
constexpr int64_t kDyingTooLongNs = 10 * kNsPerSecond;
// Of a flow that has delivered nothing yet: its path may be dead.
constexpr int64_t kFirstPatienceNs = 200 * kNsPerMs;
// Small messages of which nothing was heard for so long are sent by bulk flows as well. A peer that
// reads and then looks no more tells after half a second.
constexpr int64_t kUnheardNs = 2 * kNsPerSecond;
constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

// For those who ask for no more of it than its request.
Frame FrameOf(uint64_t request) {
  Frame frame;
  frame.number = request;
  return frame;
}

}  // namespace

Outgoing::Outgoing(Sender& sender, Worker& worker, Dialer dialer)
    : sender_(sender),
      stats_(sender.stats().NextFlow()),
      socket_(dialer.Take()),
      worker_(worker),
      dialer_(std::move(dialer)) {
  stats_.CameUp(socket_.fd());
}

void Outgoing::Start(uint32_t events) {
  events_ = events;
  number_ = worker_.Add(this);
  worker_.Watch(number_, socket_.fd(), events_);
}

bool Outgoing::Work(int64_t now_ns) {
  if (now_ns >= tick_ns_) {
    tick_ns_ = now_ns + kBetweenTicksNs;
    sender_.Tick(now_ns);
    stats_.Look(now_ns, socket_.fd(), sender_.owing() || sender_.pending());
  }
  if (sender_.failed()) {
    if (socket_.open()) Down(now_ns, false, "the connection has failed");
    return false;
  }
  return up_ ? WorkUp(now_ns) : ComeUp(now_ns);
}

int64_t Outgoing::NextNs() const {
  if (sender_.failed()) return INT64_MAX;
  if (up_) return NextUpNs();
  // A dialer that works is watched, but for the limit of its patience.
  return dialing_ ? NowNs() + kNsPerSecond : dial_at_ns_;
}

void Outgoing::Down(int64_t now_ns, bool bye, const std::string& why) {
  up_ = false;
  WentDown();
  socket_.Close();
  pause_ns_ = kFirstPauseNs;
  // The first try at once: that a listener is gone tells of a peer that is.
  dial_at_ns_ = now_ns;
  dialing_ = false;
  const bool died = !bye && !sender_.failed();
  if (died) ++sender_.counters().flow_ends;
  stats_.WentDown(died);
  sender_.FlowsChanged(now_ns, false, why);
}

bool Outgoing::ComeUp(int64_t now_ns) {
  if (!dialing_) {
    if (now_ns < dial_at_ns_) return false;
    dialer_.Start(now_ns);
    stats_.Dialled();
    dialing_ = true;
    told_ = 0;
    if (dialer_.fd() >= 0) worker_.Watch(number_, dialer_.fd(), events_ | EPOLLIN | EPOLLOUT);
  }
  const Dialer::State state = dialer_.Step(now_ns);
  if (state == Dialer::State::kWorking) return false;
  dialing_ = false;
  if (state == Dialer::State::kReady) {
    socket_ = dialer_.Take();
    up_ = true;
    // It may have ended already, of which nobody tells again.
    told_ |= EPOLLIN | EPOLLOUT;
    ++sender_.counters().flow_returns;
    stats_.CameUp(socket_.fd());
    sender_.FlowsChanged(now_ns, false, "");
    return true;
  }
  const bool gone = state == Dialer::State::kRefused || state == Dialer::State::kNever;
  dial_at_ns_ = now_ns + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  sender_.FlowsChanged(now_ns, gone, dialer_.reason());
  return false;
}

// Bulk ------------------------------------------------------------------------------------------

SendFlow::SendFlow(Sender& sender, Worker& worker, Dialer dialer)
    : Outgoing(sender, worker, std::move(dialer)),
      zero_copy_(sender.surroundings().settings.zero_copy, sender.counters()) {}

FlowRate::Mark SendFlow::Begin(int64_t now_ns, uint64_t length, bool starved) {
  const FlowRate::Mark mark = rate_.Sent(now_ns, undelivered_, starved);
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
    worked = zero_copy_.DyingReports(&released_);
    Released(released_);
    SayIfDyingTooLong(now_ns);
  }
  return Outgoing::Work(now_ns) || worked;
}

int64_t SendFlow::NextNs() const {
  return std::min(Outgoing::NextNs(), zero_copy_.dying() ? NowNs() + kOwingNs : INT64_MAX);
}

bool SendFlow::WorkUp(int64_t now_ns) {
  bool worked = false;
  if (zero_copy_.outstanding()) worked = KernelReports(now_ns);
  if (up() && (told_ & (EPOLLIN | kGone)) != 0) worked |= ReadNotes(now_ns);
  if (!up()) return true;
  if ((told_ & EPOLLOUT) != 0) writable_ = true;
  told_ = 0;
  if (writing_ && pinned_ && reclaims_ != sender_.reclaims()) GiveBack();
  for (int i = 0; i < kFramesATurn && writable_; ++i) {
    if (!writing_ && !Next(now_ns)) break;
    worked = true;
    if (!Write(now_ns)) break;
  }
  if (worked) full_ = !writable_ || undelivered_ >= rate_.Cap(fastest_);
  return worked;
}

int64_t SendFlow::NextUpNs() const {
  const bool waits = sender_.owing() || sender_.pending() || zero_copy_.outstanding();
  return waits ? NowNs() + kOwingNs : INT64_MAX;
}

bool SendFlow::ReadNotes(int64_t now_ns) {
  std::string why;
  bool something = false;
  uint64_t acknowledged = acknowledged_;
  bool bye = false;
  // Nobody can have read a frame that is not written yet.
  const uint64_t written = begun_ - (writing_ ? 1 : 0);
  const bool well =
      notes_.Read(socket_.fd(), (told_ & kGone) != 0, &why, &something, [&](const Note& note) {
        if (note.type == FrameType::kWaiting) sender_.PeerWaits(now_ns);
        bye |= note.type == FrameType::kBye;
        if (note.type != FrameType::kAck) return true;
        if (note.value < acknowledged || note.value > written) return false;
        acknowledged = note.value;
        return true;
      });
  if (acknowledged != acknowledged_) Acknowledge(acknowledged, now_ns);
  if (!well || bye) Down(now_ns, bye, bye ? "the peer has closed the connection" : why);
  return something;
}

bool SendFlow::Acknowledge(uint64_t frames, int64_t now_ns) {
  const uint64_t count = frames - acknowledged_;
  acknowledged_ = frames;
  const std::vector<Frame> done(frames_.begin(), frames_.begin() + static_cast<ptrdiff_t>(count));
  frames_.erase(frames_.begin(), frames_.begin() + static_cast<ptrdiff_t>(count));
  uint64_t bytes = 0;
  for (const Frame& frame : done) bytes += frame.length;
  undelivered_ -= bytes;
  const PathFacts path = ReadPathFacts(socket_.fd()).value_or(PathFacts());
  rate_.Acknowledged(now_ns, bytes, done.back().mark, path.busy_ns);
  rate_.SetPathRoundTrip(path.shortest_round_trip_ns);
  shared_rate_.store(rate_.rate(), std::memory_order_relaxed);
  stats_.Moved(bytes, count);
  stats_.SetUndelivered(undelivered_);
  stats_.SetRate(rate_.rate());
  sender_.Acknowledged(done, now_ns);
  return true;
}

bool SendFlow::Next(int64_t now_ns) {
  const bool idle = undelivered_ == 0;
  if (sender_.pending()) {
    if (undelivered_ >= rate_.Cap(fastest_)) return false;
  } else {
    if (!idle || !sender_.owing() || now_ns < late_look_ns_) return false;
    late_look_ns_ = now_ns + kLateLookNs;
  }
  // Before: another copy of the chunk may be acknowledged at once.
  const uint64_t reclaims = sender_.reclaims();
  const std::optional<Sender::Taken> taken = sender_.Take(*this, now_ns);
  if (!taken) return false;
  frames_.push_back(taken->frame);
  if (taken->again) stats_.TookOver();
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

Moved SendFlow::WriteFrame() {
  std::array<iovec, 2> parts = {{
      {header_.data() + (header_.size() - header_left_), header_left_},
      {const_cast<std::byte*>(body_), body_left_},
  }};
  const size_t first = header_left_ == 0 ? 1 : 0;
  if (!pinned_ || !zero_copy_.Wants(body_left_)) {
    return WriteSome(socket_.fd(), std::span(parts).subspan(first));
  }
  Moved all;
  if (header_left_ != 0) {
    // Always copied: the next frame's takes its place.
    all = WriteSome(socket_.fd(), {&parts[0], 1}, MSG_MORE);
    if (all.error != 0 || all.bytes != header_left_) return all;
  }
  std::span<const std::byte> body(body_, body_left_);
  while (!body.empty()) {
    std::optional<Moved> sent;
    if (zero_copy_.Wants(body.size())) {
      sent = zero_copy_.Send(socket_.fd(), frames_.back().number, body);
    }
    const bool copied = !sent;
    iovec part = {const_cast<std::byte*>(body.data()), body.size()};
    if (copied) sent = WriteSome(socket_.fd(), {&part, 1});
    if (sent->later() && all.bytes != 0) break;
    if (sent->error != 0) return *sent;
    all.bytes += sent->bytes;
    body = body.subspan(sent->bytes);
    // What is short without a copy may end at a page that the kernel cannot hold. What is short
    // with one has filled the socket.
    if (copied) break;
  }
  return all;
}

// False: no more now.
bool SendFlow::Write(int64_t now_ns) {
  const Moved moved = WriteFrame();
  if (moved.later()) {
    writable_ = false;
    return false;
  }
  if (moved.error != 0) {
    Down(now_ns, false, ErrorWords(moved.error));
    return false;
  }
  const size_t of_header = std::min(moved.bytes, header_left_);
  header_left_ -= of_header;
  body_ += moved.bytes - of_header;
  body_left_ -= moved.bytes - of_header;
  if (header_left_ != 0 || body_left_ != 0) {
    // A short write: the socket is full, and epoll tells when it is not.
    writable_ = false;
    return false;
  }
  writing_ = false;
  if (pinned_) LetGo();
  return true;
}

void SendFlow::LetGo() {
  pinned_ = false;
  if (zero_copy_.Finish()) sender_.Written(frames_.back());
}

void SendFlow::Released(std::span<const uint64_t> requests) {
  for (const uint64_t request : requests) sender_.Written(FrameOf(request));
}

// Of sends without a copy. They come as an error of the socket, which is not the flow's end.
bool SendFlow::KernelReports(int64_t now_ns) {
  const bool look = now_ns >= held_look_ns_;
  if (!look && (told_ & EPOLLERR) == 0) return false;
  released_.clear();
  const bool something = zero_copy_.Reports(socket_.fd(), &released_);
  Released(released_);
  if (something && (told_ & (EPOLLHUP | EPOLLRDHUP)) == 0) told_ &= ~uint32_t{EPOLLERR};
  if (look) {
    held_look_ns_ = now_ns + kHeldLookNs;
    EndIfHeldTooLong(now_ns);
  }
  return something;
}

void SendFlow::EndIfHeldTooLong(int64_t now_ns) {
  std::optional<uint64_t> held = zero_copy_.oldest();
  if (held && !sender_.WantedBack(FrameOf(*held))) held.reset();
  const bool again = held && held == held_;
  held_ = held;
  if (!again) return;
  zero_copy_.HeldTooLong(now_ns);
  Down(now_ns, false, "the kernel still held what others had delivered");
}

void SendFlow::SayIfDyingTooLong(int64_t now_ns) {
  if (!zero_copy_.dying()) {
    dying_told_ = false;
  } else if (now_ns - zero_copy_.dying_since_ns() > kDyingTooLongNs &&
             !std::exchange(dying_told_, true)) {
    sender_.surroundings().log.Warn(
        "the kernel holds bytes of a connection that has ended for more than 10 s, and requests "
        "wait for it: NCCLTUNE_NET_ZEROCOPY=0 avoids this");
  }
}

// The other copies have arrived: the application waits for a buffer that only this flow still
// reads.
void SendFlow::GiveBack() {
  reclaims_ = sender_.reclaims();
  if (!sender_.WantedBack(frames_.back())) return;
  rescued_.assign(body_, body_ + body_left_);
  body_ = rescued_.data();
  LetGo();
}

void SendFlow::WentDown() {
  if (writing_ && pinned_) LetGo();
  // What the kernel holds keeps its requests waiting, though others deliver them.
  released_.clear();
  zero_copy_.Abandon(std::move(socket_), NowNs(), &released_);
  Released(released_);
  held_.reset();
  const std::vector<Frame> owed(frames_.begin(), frames_.end());
  frames_.clear();
  undelivered_ = 0;
  acknowledged_ = 0;
  begun_ = 0;
  writing_ = false;
  writable_ = true;
  notes_ = Notes();
  rate_ = FlowRate();
  shared_rate_ = 0;
  full_ = false;
  sender_.Owed(owed);
}

void SendFlow::Close(Pool& pool) {
  released_.clear();
  if (zero_copy_.outstanding()) zero_copy_.Reports(socket_.fd(), &released_);
  // Requests that are given up: their bytes may be others' soon, and must not be sent then.
  if (zero_copy_.outstanding()) zero_copy_.Abandon(std::move(socket_), NowNs(), &released_);
  zero_copy_.AwaitDying();
  if (!socket_.open()) return;
  if (!writing_) {
    pool.End(std::move(socket_), EncodeForwardBye());
    return;
  }
  // Half of a frame is no end that is meant.
  if (pinned_) LetGo();
  socket_.Close();
}

// Express ---------------------------------------------------------------------------------------

bool ExpressOut::Put(const DataHeader& header, const std::byte* data) {
  const std::scoped_lock lock(mutex_);
  if (!up()) return false;
  numbers_.push_back(header.request);
  stats_.Moved(header.length, 1);
  auto bytes = Encode(header);
  size_t written = 0;
  if (left_.empty()) {
    std::array<iovec, 2> parts = {
        {{bytes.data(), bytes.size()}, {const_cast<std::byte*>(data), header.length}}};
    const Moved moved = WriteSome(socket_.fd(), std::span(parts).first(header.length == 0 ? 1 : 2));
    // Of an error the worker hears as well, and sends again what is not acknowledged.
    written = moved.bytes;
  }
  const size_t of_header = std::min(written, bytes.size());
  left_.insert(left_.end(), bytes.begin() + static_cast<ptrdiff_t>(of_header), bytes.end());
  left_.insert(left_.end(), data + (written - of_header), data + header.length);
  if (!left_.empty()) worker().Wake();
  return true;
}

void ExpressOut::Look() {
  const std::scoped_lock lock(mutex_);
  if (!up()) return;
  ReadNotes(NowNs());
  if (!up()) worker().Wake();
}

int64_t ExpressOut::NextNs() const {
  const std::scoped_lock lock(mutex_);
  return Outgoing::NextNs();
}

void ExpressOut::Ready(uint32_t events) {
  const std::scoped_lock lock(mutex_);
  Outgoing::Ready(events);
  look_ns_ = 0;
}

bool ExpressOut::Work(int64_t now_ns) {
  // Without the lock, which the application's thread needs: a worker that looks for work comes by
  // all the time.
  if (up() && !sender_.failed() && now_ns < look_ns_) return false;
  look_ns_ = now_ns + kBetweenTicksNs;
  const std::scoped_lock lock(mutex_);
  const bool worked = Outgoing::Work(now_ns);
  // It came up just now.
  if (told_ != 0) look_ns_ = 0;
  return worked;
}

int64_t ExpressOut::NextUpNs() const {
  return NowNs() + (sender_.express_late() ? kBetweenTicksNs : kUnheardNs / 2);
}

bool ExpressOut::WorkUp(int64_t now_ns) {
  const bool unheard = sender_.unheard_since_ns() < now_ns - kUnheardNs;
  if ((told_ & kGone) != 0 || unheard) ReadNotes(now_ns);
  if (!up()) return true;
  if (unheard && sender_.unheard_since_ns() < now_ns - kUnheardNs) sender_.ExpressIsLate();
  const bool tried = !left_.empty() && (told_ & EPOLLOUT) != 0;
  told_ = 0;
  return tried && Flush(now_ns);
}

bool ExpressOut::Flush(int64_t now_ns) {
  iovec part = {left_.data(), left_.size()};
  const Moved moved = WriteSome(socket_.fd(), {&part, 1});
  if (moved.error != 0 && !moved.later()) Down(now_ns, false, ErrorWords(moved.error));
  if (!up()) return true;
  left_.erase(left_.begin(), left_.begin() + static_cast<ptrdiff_t>(moved.bytes));
  return moved.bytes != 0;
}

bool ExpressOut::ReadNotes(int64_t now_ns) {
  std::string why;
  bool something = false;
  bool bye = false;
  uint64_t acknowledged = acknowledged_;
  const bool well =
      notes_.Read(socket_.fd(), (told_ & kGone) != 0, &why, &something, [&](const Note& note) {
        bye |= note.type == FrameType::kBye;
        if (note.type != FrameType::kAck) return true;
        if (note.value < acknowledged || note.value - acknowledged_ > numbers_.size()) return false;
        acknowledged = note.value;
        return true;
      });
  const auto count = static_cast<ptrdiff_t>(acknowledged - acknowledged_);
  acknowledged_ = acknowledged;
  const std::vector<uint64_t> done(numbers_.begin(), numbers_.begin() + count);
  numbers_.erase(numbers_.begin(), numbers_.begin() + count);
  if (!done.empty()) sender_.AcknowledgedExpress(done, now_ns);
  if (!well || bye) Down(now_ns, bye, bye ? "the peer has closed the connection" : why);
  return something;
}

void ExpressOut::WentDown() {
  const std::vector<uint64_t> owed(numbers_.begin(), numbers_.end());
  numbers_.clear();
  left_.clear();
  acknowledged_ = 0;
  notes_ = Notes();
  sender_.OwedExpress(owed);
}

void ExpressOut::Close(Pool& pool) {
  const std::scoped_lock lock(mutex_);
  if (!socket_.open()) return;
  auto bye = EncodeForwardBye();
  left_.insert(left_.end(), bye.begin(), bye.end());
  pool.End(std::move(socket_), left_);
}

}  // namespace nccltune::net
