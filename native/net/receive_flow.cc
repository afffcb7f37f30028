// SPDX-License-Identifier: Apache-2.0
#include "net/receive_flow.h"

#include <algorithm>
#include <utility>

#include "common/contain.h"
#include "common/text.h"
#include "net/clock.h"
#include "net/flow_rate.h"

namespace nccltune::net {
namespace {

constexpr int kReadsATurn = 8;
// Frames are acknowledged after this many bytes, and whenever no more data is available or the flow
// must wait.
constexpr uint64_t kAckBytes = 2 * kFullChunk;
// Acknowledgements of eager (small) messages can be rare: the sender waits for none of them, and
// only keeps copies in a limited number of slots. An acknowledgement is sent after this many
// messages, bytes or nanoseconds.
constexpr uint64_t kAckEagerMessages = 32;
constexpr uint64_t kAckEagerBytes = 128 << 10;
constexpr int64_t kAckEagerNs = 2 * kNsPerMs;
// Delay of the last acknowledgement if the application stops polling.
constexpr int64_t kIdleAckNs = 500 * kNsPerMs;
constexpr int64_t kHeldCheckNs = 20 * kNsPerMs;
constexpr int64_t kBetweenWaitingFramesNs = kNsPerSecond;
constexpr const char* kClosed = "the peer has closed the connection";
constexpr const char* kNoRoom = "the buffer for data that the application has not posted is full";
constexpr const char* kStrange = "the peer sent an invalid frame";

}  // namespace

void ReceiveFlowBase::Adopt(Descriptor socket) {
  {
    const std::scoped_lock lock(adopt_mutex_);
    adopt_ = std::move(socket);
    adopted_ = true;
  }
  worker().Wake();
}

void ReceiveFlowBase::TakeAdopted(int64_t now_ns) {
  {
    // Move the socket and clear the flag under one lock: another Adopt may run now, and its socket
    // must not be lost.
    const std::scoped_lock lock(adopt_mutex_);
    socket_ = std::move(adopt_);
    adopted_ = false;
  }
  Reset();
  unsent_frame_.clear();
  writable_ = true;
  path_.Reset();
  // The flow is still up here if the peer noticed the end of the old socket before we did.
  if (up_) CountEnd(true);
  up_ = true;
  epoll_events_ = EPOLLIN;
  ++owner_.counters().flow_returns;
  stats_.CameUp(socket_.fd());
  owner_.FlowsChanged(now_ns, false, {});
  if (const int error = Watch(socket_.fd()); error != 0) {
    // The peer connects again.
    Down(now_ns, false, {"epoll_ctl: " + ErrorWords(error)});
  }
}

bool ReceiveFlowBase::Work(int64_t now_ns) {
  if (adopted_) TakeAdopted(now_ns);
  if (!Tick(now_ns)) return false;
  if ((epoll_events_ & EPOLLOUT) != 0) {
    epoll_events_ &= ~uint32_t{EPOLLOUT};
    writable_ = true;
    if (up_) WriteUnsent();
  }
  return up_ && WorkUp(now_ns);
}

int64_t ReceiveFlowBase::NextDownNs() const { return NowNs() + kNsPerSecond; }

void ReceiveFlowBase::Down(int64_t now_ns, bool bye, const SocketEnd& end) {
  up_ = false;
  socket_.Close();
  Reset();
  CountEnd(!bye && !owner_.failed());
  owner_.FlowsChanged(now_ns, bye, end);
}

bool ReceiveFlowBase::SendReverseFrame(const ReverseFrame& frame) {
  WriteUnsent();
  if (!writable_) return false;
  const auto bytes = Encode(frame);
  unsent_frame_.assign(bytes.begin(), bytes.end());
  WriteUnsent();
  if (unsent_frame_.size() != bytes.size()) return true;
  // Acknowledgements are cumulative, so a newer one replaces this frame.
  unsent_frame_.clear();
  return false;
}

// Writes the rest of a frame until the socket is full.
void ReceiveFlowBase::WriteUnsent() {
  while (writable_ && !unsent_frame_.empty()) {
    iovec part = {unsent_frame_.data(), unsent_frame_.size()};
    const IoResult moved = WriteSome(socket_.fd(), {&part, 1});
    if (moved.would_block()) {
      writable_ = false;
      return;
    }
    if (moved.error != 0) {
      // Nothing can be sent any more. Continue to read: data that the peer has sent earlier comes
      // before the end of the stream.
      unsent_frame_.clear();
      return;
    }
    path_.Wrote();
    unsent_frame_.erase(unsent_frame_.begin(),
                        unsent_frame_.begin() + static_cast<ptrdiff_t>(moved.bytes));
  }
}

void ReceiveFlowBase::Close(Pool& pool) noexcept {
  if (!socket_) return;
  // If memory runs out, the peer sees the stream end without a bye.
  Contain([&] {
    std::vector<std::byte> rest = unsent_frame_;
    const auto append = [&rest](const ReverseFrame& frame) {
      const auto bytes = Encode(frame);
      rest.insert(rest.end(), bytes.begin(), bytes.end());
    };
    const FrameCounts frames = frame_counts();
    if (frames.acknowledged != frames.arrived) append({FrameType::kAck, frames.arrived});
    append({FrameType::kBye, 0});
    pool.CloseGracefully(std::move(socket_), rest);
  });
  socket_.Close();
}

// Bulk flows, for large messages

bool ReceiveFlow::WorkUp(int64_t now_ns) {
  if ((epoll_events_ & (EPOLLIN | kGone)) != 0) readable_ = true;
  if ((epoll_events_ & kGone) != 0) gone_ = true;
  epoll_events_ = 0;
  bool worked = false;
  for (int i = 0; i < kReadsATurn; ++i) {
    const Step step = Read(now_ns);
    if (step == Step::kDown) return true;
    if (step == Step::kWait) break;
    worked = true;
  }
  // Acknowledge now: the peer may wait for an acknowledgement before it sends more.
  if (!readable_ || state_ == ReadState::kHeld || bytes_unacked_ >= kAckBytes) {
    worked |= Acknowledge();
  }
  return worked;
}

int64_t ReceiveFlow::NextUpNs() const {
  return state_ == ReadState::kHeld ? NowNs() + kHeldCheckNs : INT64_MAX;
}

ReceiveFlow::Step ReceiveFlow::Read(int64_t now_ns) {
  switch (state_) {
    case ReadState::kHeld:
      return Wait(now_ns);
    case ReadState::kHeader:
      return readable_ ? ReadHeader(now_ns) : Step::kWait;
    case ReadState::kBody:
      // An empty chunk is complete with its header.
      return readable_ || header_.length == 0 ? ReadBody(now_ns) : Step::kWait;
  }
  return Step::kWait;
}

// Handles the result of a read of `wanted` bytes: updates `readable_`, and takes the flow down on
// an error or at the end of the stream.
ReceiveFlow::Step ReceiveFlow::CheckRead(const IoResult& moved, size_t wanted, int64_t now_ns) {
  if (moved.would_block()) {
    readable_ = false;
    return Step::kWait;
  }
  if (moved.error != 0 || moved.bytes == 0) {
    Down(now_ns, false, EndOf(moved));
    return Step::kDown;
  }
  // A short read has emptied the socket. But if epoll has reported the end of the stream, that end
  // must still be read.
  if (moved.bytes < wanted && !gone_) readable_ = false;
  return Step::kMore;
}

ReceiveFlow::Step ReceiveFlow::ReadHeader(int64_t now_ns) {
  iovec part = {header_bytes_.data() + header_filled_, header_bytes_.size() - header_filled_};
  const IoResult moved = ReadSome(socket_.fd(), {&part, 1});
  const Step step = CheckRead(moved, part.iov_len, now_ns);
  if (step != Step::kMore) return step;
  header_filled_ += moved.bytes;
  return header_filled_ == header_bytes_.size() ? HeaderDone(now_ns) : Step::kMore;
}

// Makes one non-blocking read for the missing bytes of the current chunk and for the next header.
// The read may bring fewer bytes. An empty chunk is completed without a read.
ReceiveFlow::Step ReceiveFlow::ReadBody(int64_t now_ns) {
  std::optional<std::byte*> to;
  if (!stashing_) to = owner_.Pin(header_);
  if (!to) own_.resize(header_.length);
  const size_t left = header_.length - body_filled_;
  std::array<iovec, 2> parts = {{
      {(to ? *to : own_.data()) + body_filled_, left},
      {header_bytes_.data(), header_bytes_.size()},
  }};
  IoResult moved;
  if (left != 0) moved = ReadSome(socket_.fd(), parts);
  const size_t of_body = std::min(moved.bytes, left);
  body_filled_ += of_body;
  const bool done = body_filled_ == header_.length;
  if (to) owner_.Unpin(header_, done);
  if (left != 0) {
    const Step step = CheckRead(moved, left + header_bytes_.size(), now_ns);
    if (step != Step::kMore) return step;
  }
  if (!done) return Step::kMore;
  return BodyDone(to.has_value(), moved.bytes - of_body, now_ns);
}

ReceiveFlow::Step ReceiveFlow::BodyDone(bool placed, size_t header_filled, int64_t now_ns) {
  stats_.AddTransferred(header_.length, 1);
  if (!placed && !stashing_) {
    ++owner_.counters().not_wanted;
    stats_.Duplicate();
  }
  if (!placed && stashing_ && !owner_.Stash(header_, std::exchange(own_, {}))) {
    Down(now_ns, false, {kNoRoom});
    return Step::kDown;
  }
  ++frames_;
  bytes_unacked_ += header_.length + kDataHeaderBytes;
  state_ = ReadState::kHeader;
  header_filled_ = header_filled;
  return header_filled_ == header_bytes_.size() ? HeaderDone(now_ns) : Step::kMore;
}

ReceiveFlow::Step ReceiveFlow::HeaderDone(int64_t now_ns) {
  const std::optional<ForwardFrame> forward = DecodeForwardFrame(header_bytes_);
  header_filled_ = 0;
  if (!forward || forward->type == FrameType::kBye) {
    Down(now_ns, forward.has_value(), {forward ? kClosed : kStrange});
    return Step::kDown;
  }
  header_ = forward->data;
  body_filled_ = 0;
  return PlaceChunk(now_ns);
}

// Decides what happens to the chunk of the current header. The chunk is read now if its request is
// posted or complete. Otherwise the flow waits. An invalid chunk takes the flow down.
ReceiveFlow::Step ReceiveFlow::PlaceChunk(int64_t now_ns) {
  const Receiver::ChunkState place = owner_.Locate(header_);
  if (place == Receiver::ChunkState::kInvalid) {
    Down(now_ns, false, {kStrange});
    return Step::kDown;
  }
  stashing_ = false;
  if (place == Receiver::ChunkState::kNotPosted) {
    state_ = ReadState::kHeld;
    waiting_sent_ns_ = now_ns;
    // A thread that posts a request sets Receiver::posted() and then reads `held_`. This thread
    // sets `held_` and then reads posted(). So at least one of the two threads sees the other's
    // value.
    held_ = header_.request;
    return Wait(now_ns);
  }
  state_ = ReadState::kBody;
  return Step::kMore;
}

// Checks whether this flow must still wait for the request of its current chunk. The wait ends when
// the application has posted the request. It also ends if the receiver is stalled: the chunk is
// then read into our own memory. Until then, a kWaiting frame is sent every second.
ReceiveFlow::Step ReceiveFlow::Wait(int64_t now_ns) {
  const bool posted = owner_.posted() > header_.request;
  if (!posted && !owner_.stalled(now_ns)) {
    if (now_ns - waiting_sent_ns_ < kBetweenWaitingFramesNs) return Step::kWait;
    if (SendReverseFrame({FrameType::kWaiting, 0})) waiting_sent_ns_ = now_ns;
    return Step::kWait;
  }
  held_ = kNone;
  if (posted) return PlaceChunk(now_ns);
  stashing_ = true;
  state_ = ReadState::kBody;
  return Step::kMore;
}

bool ReceiveFlow::Acknowledge() {
  if (frames_acked_ == frames_ || !SendReverseFrame({FrameType::kAck, frames_})) return false;
  frames_acked_ = frames_;
  bytes_unacked_ = 0;
  return true;
}

void ReceiveFlow::Reset() {
  held_ = kNone;
  state_ = ReadState::kHeader;
  header_filled_ = 0;
  body_filled_ = 0;
  readable_ = true;
  gone_ = false;
  stashing_ = false;
  frames_ = 0;
  frames_acked_ = 0;
  bytes_unacked_ = 0;
}

// Express flow, for small messages

void ExpressReceiveFlow::Poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !up() || owner_.failed()) return;
  ReadAll(NowNs());
  if (!up()) worker().Wake();
}

void ExpressReceiveFlow::Ready(uint32_t events) {
  ReceiveFlowBase::Ready(events);
  next_check_ns_ = 0;
}

bool ExpressReceiveFlow::Work(int64_t now_ns) {
  // Check without the lock: a spinning thread runs this check all the time, and the application's
  // thread needs the lock.
  if (up() && !owner_.failed() && !adopted() && now_ns < next_check_ns_) return false;
  next_check_ns_ = now_ns + kBetweenTicksNs;
  const std::scoped_lock lock(mutex_);
  return ReceiveFlowBase::Work(now_ns);
}

int64_t ExpressReceiveFlow::NextNs() const {
  const std::scoped_lock lock(mutex_);
  return ReceiveFlowBase::NextNs();
}

int64_t ExpressReceiveFlow::NextUpNs() const { return NowNs() + kIdleAckNs; }

bool ExpressReceiveFlow::WorkUp(int64_t now_ns) {
  if ((epoll_events_ & (EPOLLIN | kGone)) == 0) {
    Acknowledge(now_ns);
    return false;
  }
  if ((epoll_events_ & kGone) != 0) gone_ = true;
  epoll_events_ = 0;
  ReadAll(now_ns);
  return true;
}

void ExpressReceiveFlow::ReadAll(int64_t now_ns) {
  while ((large_ || Parse(now_ns)) && ReadMore(now_ns)) continue;
  if (up() && !large_) Parse(now_ns);
  if (up()) Acknowledge(now_ns);
}

void ExpressReceiveFlow::Acknowledge(int64_t now_ns) {
  if (frames_ == frames_acked_) return;
  if (unacked_since_ns_ == 0) unacked_since_ns_ = now_ns;
  const bool enough =
      frames_ - frames_acked_ >= kAckEagerMessages || bytes_unacked_ >= kAckEagerBytes;
  if (!enough && now_ns - unacked_since_ns_ < kAckEagerNs) return;
  if (!SendReverseFrame({FrameType::kAck, frames_})) return;
  frames_acked_ = frames_;
  bytes_unacked_ = 0;
  unacked_since_ns_ = 0;
}

bool ExpressReceiveFlow::ReadMore(int64_t now_ns) {
  if (begin_ != 0) {
    std::copy(bytes_.begin() + static_cast<ptrdiff_t>(begin_),
              bytes_.begin() + static_cast<ptrdiff_t>(end_), bytes_.begin());
    end_ -= std::exchange(begin_, 0);
  }
  std::array<iovec, 2> parts = {{{nullptr, 0}, {bytes_.data() + end_, bytes_.size() - end_}}};
  std::optional<std::byte*> to;
  if (large_) {
    if (!large_stashed_) to = owner_.Pin(large_header_);
    if (!to) own_.resize(large_header_.length);
    parts[0] = {(to ? *to : own_.data()) + large_filled_, large_header_.length - large_filled_};
  }
  const size_t wanted = parts[0].iov_len + parts[1].iov_len;
  const IoResult moved = ReadSome(socket_.fd(), std::span(parts).subspan(large_ ? 0 : 1));
  const size_t of_large = std::min(moved.bytes, parts[0].iov_len);
  const bool whole = large_ && of_large == parts[0].iov_len;
  if (to) owner_.Unpin(large_header_, whole);
  if (moved.would_block()) return false;
  if (moved.error != 0 || moved.bytes == 0) {
    Down(now_ns, false, EndOf(moved));
    return false;
  }
  large_filled_ += of_large;
  end_ += moved.bytes - of_large;
  if (whole) {
    large_ = false;
    ++frames_;
    bytes_unacked_ += large_header_.length;
    stats_.AddTransferred(large_header_.length, 1);
    if (large_stashed_ && !owner_.Stash(large_header_, std::exchange(own_, {}))) {
      Down(now_ns, false, {kNoRoom});
      return false;
    }
  }
  // A short read has emptied the socket. But if epoll has reported the end of the stream, that end
  // must still be read.
  return moved.bytes == wanted || gone_;
}

bool ExpressReceiveFlow::Parse(int64_t now_ns) {
  while (up() && !large_ && end_ - begin_ >= kDataHeaderBytes) {
    const std::span<const std::byte> rest(bytes_.data() + begin_, end_ - begin_);
    const std::optional<ForwardFrame> forward = DecodeForwardFrame(rest.first<kDataHeaderBytes>());
    if (!forward || forward->type == FrameType::kBye) {
      Down(now_ns, forward.has_value(), {forward ? kClosed : kStrange});
      return false;
    }
    const DataHeader& header = forward->data;
    const Receiver::ChunkState place = owner_.Locate(header);
    if (place == Receiver::ChunkState::kInvalid) {
      Down(now_ns, false, {kStrange});
      return false;
    }
    if (place == Receiver::ChunkState::kNotPosted && !owner_.stalled(now_ns)) return false;
    const size_t length = kDataHeaderBytes + header.length;
    if (rest.size() < length) {
      if (length > bytes_.size()) BeginLarge(header, place);
      return true;
    }
    const std::byte* const body = rest.data() + kDataHeaderBytes;
    if (place == Receiver::ChunkState::kNotPosted) {
      if (!owner_.Stash(header, {body, body + header.length})) return false;
    } else {
      owner_.Put(header, body);
    }
    begin_ += length;
    ++frames_;
    bytes_unacked_ += header.length;
    stats_.AddTransferred(header.length, 1);
  }
  return up();
}

// Begins a message that is larger than the read buffer. The bytes after the header in the buffer
// are the start of the message.
void ExpressReceiveFlow::BeginLarge(const DataHeader& header, Receiver::ChunkState place) {
  large_header_ = header;
  large_stashed_ = place == Receiver::ChunkState::kNotPosted;
  const std::byte* const body = bytes_.data() + begin_ + kDataHeaderBytes;
  large_filled_ = std::min<size_t>(end_ - begin_ - kDataHeaderBytes, header.length);
  std::optional<std::byte*> to;
  if (!large_stashed_) to = owner_.Pin(header);
  if (!to) own_.resize(header.length);
  std::copy(body, body + large_filled_, to ? *to : own_.data());
  if (to) owner_.Unpin(header, false);
  begin_ = 0;
  end_ = 0;
  large_ = true;
}

void ExpressReceiveFlow::Reset() {
  large_ = false;
  gone_ = false;
  unacked_since_ns_ = 0;
  begin_ = 0;
  end_ = 0;
  frames_ = 0;
  frames_acked_ = 0;
  bytes_unacked_ = 0;
}

}  // namespace nccltune::net
