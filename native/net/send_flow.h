// SPDX-License-Identifier: Apache-2.0
// The flows of a sender. A flow is one TCP connection. A connection of NCCL has one express flow
// for small messages and several bulk flows for large ones. A flow that goes down reconnects.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "net/connection_stats.h"
#include "net/dialer.h"
#include "net/flow.h"
#include "net/flow_rate.h"
#include "net/pool.h"
#include "net/sender.h"
#include "net/socket.h"
#include "net/zero_copy.h"

namespace nccltune::net {

// The base of a sender's flows. A flow that is down reconnects.
class SendFlowBase : public FlowBase<Sender> {
 public:
  // `dialer` must be in state kReady.
  SendFlowBase(Sender& sender, std::shared_ptr<PoolThread> worker, Dialer dialer)
      : FlowBase(sender, std::move(worker), dialer.Take()), dialer_(std::move(dialer)) {}

  bool Work(int64_t now_ns) override;

 protected:
  // Called when the flow goes down, before its socket is closed. Queues the flow's unacknowledged
  // chunks at the sender again.
  virtual void WentDown() = 0;
  int64_t NextDownNs() const override;
  bool waits() const override { return owner_.has_unacked_frames() || owner_.pending(); }

  void Down(int64_t now_ns, bool bye, const SocketEnd& end) override;

 private:
  bool ComeUp(int64_t now_ns);
  void DialFailed(int64_t now_ns, bool gone, const SocketEnd& end);

  Dialer dialer_;
  bool dialing_ = false;
  int64_t dial_at_ns_ = 0;
  int64_t pause_ns_ = 0;
};

// Reads the reverse frames: the frames from the receiver to the sender (wire.h).
class ReverseFrameReader {
 public:
  // Reads all available frames and passes each to `take`, which returns whether the frame is valid.
  // Returns false and sets `*end` if the flow has ended. Sets `*something` if any byte was read.
  // `to_the_end`: reads until the socket is empty, because epoll will not report the end of the
  // stream again.
  template <typename Take>
  bool Read(int fd, bool to_the_end, SocketEnd* end, bool* something, Take take);

 private:
  std::array<std::byte, 64 * kReverseFrameBytes> bytes_ = {};
  size_t filled_ = 0;
};

// A bulk flow: sends large messages in chunks.
class SendFlow final : public SendFlowBase {
 public:
  static constexpr uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP;

  SendFlow(Sender& sender, std::shared_ptr<PoolThread> worker, Dialer dialer);

  double rate() const { return shared_rate_.load(std::memory_order_relaxed); }
  // Returns FlowRate::Allowed, the rate for chunk sizes. Only the thread that serves this flow may
  // call this.
  double allowed() const { return rate_.Allowed(fastest_); }
  // Counts a new frame of `length` bytes as undelivered. Returns the frame's mark.
  FlowRate::Mark Begin(int64_t now_ns, uint64_t length, bool app_limited);
  // Returns the time from which a frame counts as late.
  int64_t DueNs(const FlowRate::Mark& mark) const;
  // Sets the rate of the connection's fastest flow. Only the thread that serves this flow may call
  // this.
  void SetFastest(double rate) { fastest_ = rate; }
  bool idle() const { return undelivered_ == 0; }
  // Returns whether the flow can probably take another chunk. Callable from any thread.
  bool free() const { return up() && !full_.load(std::memory_order_relaxed); }

  // Sends a bye (the frame that ends a flow regularly), unless a frame is partly sent. Closes the
  // socket. `pool` sends the bytes that the socket does not take at once.
  void Close(Pool& pool) noexcept;

  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 protected:
  bool WorkUp(int64_t now_ns) override;
  void WentDown() override;
  int64_t NextUpNs() const override;

 private:
  bool ReadReverseFrames(int64_t now_ns);
  bool Acknowledge(uint64_t frames, int64_t now_ns);
  bool Write(int64_t now_ns);
  IoResult WriteFrame();
  bool Next(int64_t now_ns);
  std::optional<Sender::AssignedChunk> TakeChunk(int64_t now_ns);
  void SendByeAndClose(Pool& pool);
  void ReleaseBuffer();
  // Records that the flow no longer reads the current frame's buffer. If the kernel still reads it,
  // a later report of the kernel releases the buffer.
  void UnpinFrame();
  void Released(std::span<const uint64_t> requests);
  bool ReadKernelReports(int64_t now_ns);
  void EndIfHeldTooLong(int64_t now_ns);
  void WarnIfDyingTooLong(int64_t now_ns);

  FlowRate rate_;
  std::atomic<double> shared_rate_ = 0;
  double fastest_ = 0;
  std::atomic<bool> full_ = false;
  uint64_t undelivered_ = 0;
  std::deque<FlowChunk> frames_;  // unacknowledged; the last one may be partly written
  uint64_t acknowledged_ = 0;
  uint64_t begun_ = 0;
  ReverseFrameReader reverse_frames_;

  bool writing_ = false;
  bool pinned_ = false;  // the frame's bytes are in the application's buffer, not in `copied_rest_`
  bool writable_ = true;
  std::array<std::byte, kDataHeaderBytes> header_ = {};
  const std::byte* body_ = nullptr;
  size_t header_left_ = 0;
  size_t body_left_ = 0;
  std::vector<std::byte> copied_rest_;
  uint64_t reclaims_ = 0;
  int64_t late_check_ns_ = 0;

  ZeroCopy zero_copy_;
  std::vector<uint64_t> released_;  // reused by each read of the kernel's reports
  int64_t held_check_ns_ = 0;
  std::optional<uint64_t> held_;  // only the kernel held this request at the last check
  bool dying_warned_ = false;
};

// The flow for small messages. The application's thread writes to the socket. A pool thread sends
// the bytes that the socket did not take.
class ExpressSendFlow final : public SendFlowBase {
 public:
  // EPOLLIN is not included, so that acknowledgements wake no thread. Acknowledgements are read
  // when the sender needs them.
  static constexpr uint32_t kEvents = EPOLLOUT | EPOLLRDHUP;

  using SendFlowBase::SendFlowBase;

  // Sends a message. Returns false if the flow is down; then the message must take a bulk flow.
  // `data` is not used after the call.
  bool Put(const DataHeader& header, const std::byte* data);
  // Reads the available acknowledgements.
  void Poll();
  void Close(Pool& pool) noexcept;

  void Ready(uint32_t events) override;
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 protected:
  bool WorkUp(int64_t now_ns) override;
  void WentDown() override;
  int64_t NextUpNs() const override;

 private:
  bool Flush(int64_t now_ns);
  bool ReadReverseFrames(int64_t now_ns);

  mutable std::mutex mutex_;
  std::deque<uint64_t> numbers_;  // messages written or queued, and not acknowledged
  uint64_t acknowledged_ = 0;
  std::vector<std::byte> left_;  // bytes that the socket did not take yet
  int64_t next_check_ns_ = 0;    // used by the pool thread only
  ReverseFrameReader reverse_frames_;
};

template <typename Take>
bool ReverseFrameReader::Read(int fd, bool to_the_end, SocketEnd* end, bool* something, Take take) {
  for (;;) {
    iovec rest = {bytes_.data() + filled_, bytes_.size() - filled_};
    const IoResult moved = ReadSome(fd, {&rest, 1});
    if (moved.would_block()) return true;
    if (moved.error != 0 || moved.bytes == 0) {
      *end = EndOf(moved);
      return false;
    }
    *something = true;
    filled_ += moved.bytes;
    size_t at = 0;
    for (; filled_ - at >= kReverseFrameBytes; at += kReverseFrameBytes) {
      const std::span<const std::byte> bytes(bytes_.data() + at, kReverseFrameBytes);
      const std::optional<ReverseFrame> frame =
          DecodeReverseFrame(bytes.first<kReverseFrameBytes>());
      if (!frame || !take(*frame)) {
        *end = {"the peer sent an invalid acknowledgement"};
        return false;
      }
    }
    std::copy(bytes_.begin() + static_cast<ptrdiff_t>(at),
              bytes_.begin() + static_cast<ptrdiff_t>(filled_), bytes_.begin());
    filled_ -= at;
    if (moved.bytes < rest.iov_len && !to_the_end) return true;
  }
}

}  // namespace nccltune::net
