// SPDX-License-Identifier: Apache-2.0
#include "net/receive_flow.h"

#include <algorithm>
#include <utility>

#include "net/clock.h"
#include "net/flow_rate.h"

namespace nccltune::net {
namespace {

constexpr int kReadsATurn = 8;
// What was read is told after so much of it, and whenever nothing more is there.
constexpr uint64_t kTellBytes = 2 * kFullChunk;
// Of eager messages the sender keeps copies, in not too many places, and waits for nothing.
constexpr uint64_t kTellEagerMessages = 32;
constexpr uint64_t kTellEagerBytes = 128 << 10;
constexpr int64_t kTellEagerNs = 2 * kNsPerMs;
// Of what is read and not told when the application looks no more.
constexpr int64_t kTellLaterNs = 500 * kNsPerMs;
constexpr int64_t kHeldLookNs = 20 * kNsPerMs;
constexpr int64_t kTellWaitingNs = kNsPerSecond;
constexpr int64_t kBetweenTicksNs = 100 * kNsPerMs;
constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
constexpr const char* kClosed = "the peer has closed the connection";
constexpr const char* kNoRoom = "there is no room for what the application has not posted";
constexpr const char* kStrange = "what the peer sent is no frame, or not one of this connection";

}  // namespace

void Incoming::Start(uint32_t events) {
  events_ = events;
  number_ = worker_.Add(this);
  worker_.Watch(number_, socket_.fd(), events_);
}

void Incoming::Adopt(Socket socket) {
  {
    const std::scoped_lock lock(adopt_mutex_);
    adopt_ = std::move(socket);
    adopted_ = true;
  }
  worker_.Wake();
}

bool Incoming::Work(int64_t now_ns) {
  if (adopted_) {
    {
      // Both under the lock: a second one may come just now, and must not be taken for two.
      const std::scoped_lock lock(adopt_mutex_);
      socket_ = std::move(adopt_);
      adopted_ = false;
    }
    Reset();
    notes_left_.clear();
    // Its peer heard of the old one's end before we did.
    if (up_) {
      ++receiver_.counters().flow_ends;
      stats_.WentDown(true);
    }
    up_ = true;
    told_ = EPOLLIN;
    worker_.Watch(number_, socket_.fd(), events_);
    ++receiver_.counters().flow_returns;
    stats_.CameUp(socket_.fd());
    receiver_.FlowsChanged(now_ns, false, "");
  }
  if (now_ns >= tick_ns_) {
    tick_ns_ = now_ns + kBetweenTicksNs;
    receiver_.Tick(now_ns);
    stats_.Look(now_ns, socket_.fd(), false);
  }
  if (receiver_.failed()) {
    if (socket_.open()) Down(now_ns, false, "the connection has failed");
    return false;
  }
  return up_ && WorkUp(now_ns);
}

bool Incoming::Plenty(int64_t now_ns) const { return receiver_.Deep(now_ns); }

int64_t Incoming::NextNs() const {
  if (receiver_.failed()) return INT64_MAX;
  return up_ ? NextUpNs() : NowNs() + kNsPerSecond;
}

void Incoming::Down(int64_t now_ns, bool bye, const std::string& why) {
  up_ = false;
  socket_.Close();
  Reset();
  const bool died = !bye && !receiver_.failed();
  if (died) ++receiver_.counters().flow_ends;
  stats_.WentDown(died);
  receiver_.FlowsChanged(now_ns, bye, why);
}

void Incoming::SendNote(const Note& note) {
  const auto bytes = Encode(note);
  // What is cumulative may be left out while the one before is still on its way.
  if (notes_left_.empty()) notes_left_.assign(bytes.begin(), bytes.end());
  iovec part = {notes_left_.data(), notes_left_.size()};
  const Moved moved = WriteSome(socket_.fd(), {&part, 1});
  if (moved.error != 0 && !moved.later()) {
    // The peer hears nothing any more. What it sent before is still to be read, and then the end.
    notes_left_.clear();
    return;
  }
  notes_left_.erase(notes_left_.begin(), notes_left_.begin() + static_cast<ptrdiff_t>(moved.bytes));
}

void Incoming::Close(Pool& pool) {
  if (!socket_.open()) return;
  const auto bye = Encode(Note{FrameType::kBye, 0});
  if (notes_left_.empty()) {
    pool.End(std::move(socket_), bye);
  } else {
    socket_.Close();
  }
}

// Bulk ------------------------------------------------------------------------------------------

bool ReceiveFlow::WorkUp(int64_t now_ns) {
  if ((told_ & (EPOLLIN | kGone)) != 0) readable_ = true;
  if ((told_ & kGone) != 0) gone_ = true;
  told_ = 0;
  bool worked = false;
  for (int i = 0; i < kReadsATurn; ++i) {
    const Step step = Read(now_ns);
    if (step == Step::kDown) return true;
    if (step == Step::kWait) break;
    worked = true;
  }
  // The peer sends more when it knows of these.
  if (!readable_ || at_ == At::kHeld || bytes_untold_ >= kTellBytes) worked |= Acknowledge();
  return worked;
}

int64_t ReceiveFlow::NextUpNs() const {
  return at_ == At::kHeld ? NowNs() + kHeldLookNs : INT64_MAX;
}

ReceiveFlow::Step ReceiveFlow::Read(int64_t now_ns) {
  switch (at_) {
    case At::kHeld:
      return Wait(now_ns);
    case At::kHeader:
      return readable_ ? ReadHeader(now_ns) : Step::kWait;
    case At::kBody:
      // An empty chunk is here with its header.
      return readable_ || header_.length == 0 ? ReadBody(now_ns) : Step::kWait;
  }
  return Step::kWait;
}

// What a read came to: go on, wait, or down.
ReceiveFlow::Step ReceiveFlow::After(const Moved& moved, size_t wanted, int64_t now_ns) {
  if (moved.later()) {
    readable_ = false;
    return Step::kWait;
  }
  if (moved.error != 0 || moved.bytes == 0) {
    Down(now_ns, false, moved.error != 0 ? ErrorWords(moved.error) : "the peer closed it");
    return Step::kDown;
  }
  // Less than was asked for is all there is; of an end epoll has told apart.
  if (moved.bytes < wanted && !gone_) readable_ = false;
  return Step::kMore;
}

ReceiveFlow::Step ReceiveFlow::ReadHeader(int64_t now_ns) {
  iovec part = {header_bytes_.data() + header_filled_, header_bytes_.size() - header_filled_};
  const Moved moved = ReadSome(socket_.fd(), {&part, 1});
  const Step step = After(moved, part.iov_len, now_ns);
  if (step != Step::kMore) return step;
  header_filled_ += moved.bytes;
  return header_filled_ == header_bytes_.size() ? HeaderDone(now_ns) : Step::kMore;
}

// The rest of a chunk and the header behind it, in one call.
ReceiveFlow::Step ReceiveFlow::ReadBody(int64_t now_ns) {
  std::optional<std::byte*> to;
  if (!stashing_) to = receiver_.Pin(header_);
  if (!to) own_.resize(header_.length);
  const size_t left = header_.length - body_filled_;
  std::array<iovec, 2> parts = {{
      {(to ? *to : own_.data()) + body_filled_, left},
      {header_bytes_.data(), header_bytes_.size()},
  }};
  Moved moved;
  if (left != 0) moved = ReadSome(socket_.fd(), parts);
  const size_t of_body = std::min(moved.bytes, left);
  body_filled_ += of_body;
  const bool done = body_filled_ == header_.length;
  if (to) receiver_.Unpin(header_, done);
  if (left != 0) {
    const Step step = After(moved, left + header_bytes_.size(), now_ns);
    if (step != Step::kMore) return step;
  }
  if (!done) return Step::kMore;
  return BodyDone(to.has_value(), moved.bytes - of_body, now_ns);
}

ReceiveFlow::Step ReceiveFlow::BodyDone(bool placed, size_t header_filled, int64_t now_ns) {
  stats_.Moved(header_.length, 1);
  if (!placed && !stashing_) {
    ++receiver_.counters().not_wanted;
    stats_.Duplicate();
  }
  if (!placed && stashing_ && !receiver_.Stash(header_, std::exchange(own_, {}))) {
    Down(now_ns, false, kNoRoom);
    return Step::kDown;
  }
  ++frames_;
  bytes_untold_ += header_.length + kDataHeaderBytes;
  at_ = At::kHeader;
  header_filled_ = header_filled;
  return header_filled_ == header_bytes_.size() ? HeaderDone(now_ns) : Step::kMore;
}

ReceiveFlow::Step ReceiveFlow::HeaderDone(int64_t now_ns) {
  const std::optional<Forward> forward = DecodeForward(header_bytes_);
  header_filled_ = 0;
  if (!forward || forward->type == FrameType::kBye) {
    Down(now_ns, forward.has_value(), forward ? kClosed : kStrange);
    return Step::kDown;
  }
  header_ = forward->data;
  body_filled_ = 0;
  return Place(now_ns);
}

// Where the chunk goes whose header is here.
ReceiveFlow::Step ReceiveFlow::Place(int64_t now_ns) {
  const Receiver::Place place = receiver_.Locate(header_);
  if (place == Receiver::Place::kWrong) {
    Down(now_ns, false, kStrange);
    return Step::kDown;
  }
  stashing_ = false;
  if (place == Receiver::Place::kLater) {
    at_ = At::kHeld;
    waiting_told_ns_ = now_ns;
    // Who posts looks at it after he has told the number, we the other way round: one of us sees.
    held_ = header_.request;
    return Wait(now_ns);
  }
  at_ = At::kBody;
  return Step::kMore;
}

// For the application to post what stands first here.
ReceiveFlow::Step ReceiveFlow::Wait(int64_t now_ns) {
  const bool posted = receiver_.posted() > header_.request;
  if (!posted && !receiver_.starved(now_ns)) {
    if (now_ns - waiting_told_ns_ < kTellWaitingNs) return Step::kWait;
    waiting_told_ns_ = now_ns;
    SendNote({FrameType::kWaiting, 0});
    return Step::kWait;
  }
  held_ = kNone;
  if (posted) return Place(now_ns);
  stashing_ = true;
  at_ = At::kBody;
  return Step::kMore;
}

bool ReceiveFlow::Acknowledge() {
  if (frames_told_ == frames_) return false;
  frames_told_ = frames_;
  bytes_untold_ = 0;
  SendNote({FrameType::kAck, frames_});
  return true;
}

void ReceiveFlow::Reset() {
  held_ = kNone;
  at_ = At::kHeader;
  header_filled_ = 0;
  body_filled_ = 0;
  readable_ = true;
  gone_ = false;
  stashing_ = false;
  frames_ = 0;
  frames_told_ = 0;
  bytes_untold_ = 0;
}

// Express ---------------------------------------------------------------------------------------

void ExpressIn::Look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !up() || receiver_.failed()) return;
  ReadAll(NowNs());
  if (!up()) worker().Wake();
}

void ExpressIn::Ready(uint32_t events) {
  Incoming::Ready(events);
  look_ns_ = 0;
}

bool ExpressIn::Work(int64_t now_ns) {
  // Without the lock, which the application's thread needs: a worker that looks for work comes by
  // all the time.
  if (up() && !receiver_.failed() && !adopted() && now_ns < look_ns_) return false;
  look_ns_ = now_ns + kBetweenTicksNs;
  const std::scoped_lock lock(mutex_);
  return Incoming::Work(now_ns);
}

int64_t ExpressIn::NextNs() const {
  const std::scoped_lock lock(mutex_);
  return Incoming::NextNs();
}

int64_t ExpressIn::NextUpNs() const { return NowNs() + kTellLaterNs; }

bool ExpressIn::WorkUp(int64_t now_ns) {
  if ((told_ & (EPOLLIN | kGone)) == 0) {
    Acknowledge(now_ns);
    return false;
  }
  if ((told_ & kGone) != 0) gone_ = true;
  told_ = 0;
  ReadAll(now_ns);
  return true;
}

void ExpressIn::ReadAll(int64_t now_ns) {
  while ((large_ || Parse(now_ns)) && ReadMore(now_ns)) continue;
  if (up() && !large_) Parse(now_ns);
  if (up()) Acknowledge(now_ns);
}

void ExpressIn::Acknowledge(int64_t now_ns) {
  if (frames_ == frames_told_) return;
  if (untold_since_ns_ == 0) untold_since_ns_ = now_ns;
  const bool enough =
      frames_ - frames_told_ >= kTellEagerMessages || bytes_untold_ >= kTellEagerBytes;
  if (!enough && now_ns - untold_since_ns_ < kTellEagerNs) return;
  frames_told_ = frames_;
  bytes_untold_ = 0;
  untold_since_ns_ = 0;
  SendNote({FrameType::kAck, frames_});
}

bool ExpressIn::ReadMore(int64_t now_ns) {
  if (begin_ != 0) {
    std::copy(bytes_.begin() + static_cast<ptrdiff_t>(begin_),
              bytes_.begin() + static_cast<ptrdiff_t>(end_), bytes_.begin());
    end_ -= std::exchange(begin_, 0);
  }
  std::array<iovec, 2> parts = {{{nullptr, 0}, {bytes_.data() + end_, bytes_.size() - end_}}};
  std::optional<std::byte*> to;
  if (large_) {
    if (!large_stashed_) to = receiver_.Pin(large_header_);
    if (!to) own_.resize(large_header_.length);
    parts[0] = {(to ? *to : own_.data()) + large_filled_, large_header_.length - large_filled_};
  }
  const size_t wanted = parts[0].iov_len + parts[1].iov_len;
  const Moved moved = ReadSome(socket_.fd(), std::span(parts).subspan(large_ ? 0 : 1));
  const size_t of_large = std::min(moved.bytes, parts[0].iov_len);
  const bool whole = large_ && of_large == parts[0].iov_len;
  if (to) receiver_.Unpin(large_header_, whole);
  if (moved.later()) return false;
  if (moved.error != 0 || moved.bytes == 0) {
    Down(now_ns, false, moved.error != 0 ? ErrorWords(moved.error) : "the peer closed it");
    return false;
  }
  large_filled_ += of_large;
  end_ += moved.bytes - of_large;
  if (whole) {
    large_ = false;
    ++frames_;
    bytes_untold_ += large_header_.length;
    stats_.Moved(large_header_.length, 1);
    if (large_stashed_ && !receiver_.Stash(large_header_, std::exchange(own_, {}))) {
      Down(now_ns, false, kNoRoom);
      return false;
    }
  }
  // Less than was asked for is all there is; of an end epoll tells apart.
  return moved.bytes == wanted || gone_;
}

bool ExpressIn::Parse(int64_t now_ns) {
  while (up() && !large_ && end_ - begin_ >= kDataHeaderBytes) {
    const std::span<const std::byte> rest(bytes_.data() + begin_, end_ - begin_);
    const std::optional<Forward> forward = DecodeForward(rest.first<kDataHeaderBytes>());
    if (!forward || forward->type == FrameType::kBye) {
      Down(now_ns, forward.has_value(), forward ? kClosed : kStrange);
      return false;
    }
    const DataHeader& header = forward->data;
    const Receiver::Place place = receiver_.Locate(header);
    if (place == Receiver::Place::kWrong) {
      Down(now_ns, false, kStrange);
      return false;
    }
    if (place == Receiver::Place::kLater && !receiver_.starved(now_ns)) return false;
    const size_t length = kDataHeaderBytes + header.length;
    if (rest.size() < length) {
      if (length > bytes_.size()) BeginLarge(header, place);
      return true;
    }
    const std::byte* const body = rest.data() + kDataHeaderBytes;
    if (place == Receiver::Place::kLater) {
      if (!receiver_.Stash(header, {body, body + header.length})) return false;
    } else {
      receiver_.Put(header, body);
    }
    begin_ += length;
    ++frames_;
    bytes_untold_ += header.length;
    stats_.Moved(header.length, 1);
  }
  return up();
}

// The header is there, and what is behind it is its body.
void ExpressIn::BeginLarge(const DataHeader& header, Receiver::Place place) {
  large_header_ = header;
  large_stashed_ = place == Receiver::Place::kLater;
  const std::byte* const body = bytes_.data() + begin_ + kDataHeaderBytes;
  large_filled_ = std::min<size_t>(end_ - begin_ - kDataHeaderBytes, header.length);
  std::optional<std::byte*> to;
  if (!large_stashed_) to = receiver_.Pin(header);
  if (!to) own_.resize(header.length);
  std::copy(body, body + large_filled_, to ? *to : own_.data());
  if (to) receiver_.Unpin(header, false);
  begin_ = 0;
  end_ = 0;
  large_ = true;
}

void ExpressIn::Reset() {
  large_ = false;
  gone_ = false;
  untold_since_ns_ = 0;
  begin_ = 0;
  end_ = 0;
  frames_ = 0;
  frames_told_ = 0;
  bytes_untold_ = 0;
}

}  // namespace nccltune::net
