// SPDX-License-Identifier: Apache-2.0
//
// The flows of a sender: what is up, what went down and is dialled again.
#ifndef NCCLTUNE_NET_SEND_FLOW_H_
#define NCCLTUNE_NET_SEND_FLOW_H_

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/dialer.h"
#include "net/flow_rate.h"
#include "net/flow_stats.h"
#include "net/pool.h"
#include "net/sender.h"
#include "net/zero_copy.h"

namespace nccltune::net {

// A socket that is up, or on its way to be.
class Outgoing : public Task {
 public:
  // `dialer` is ready.
  Outgoing(Sender& sender, Worker& worker, Dialer dialer);

  // Begins, once all of the sender's flows exist.
  void Start(uint32_t events);
  // Ends: no call of a worker comes after it.
  void Stop() { worker_.Remove(number_); }

  void Ready(uint32_t events) override { told_ |= events; }
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;
  bool Plenty(int64_t now_ns) const override { return sender_.Deep(now_ns); }

  Worker& worker() const { return worker_; }
  bool up() const { return up_.load(); }

 protected:
  virtual bool WorkUp(int64_t now_ns) = 0;
  // It was up and is not: tells the sender what it owes. The socket is closed next.
  virtual void WentDown() = 0;
  virtual int64_t NextUpNs() const { return INT64_MAX; }

  // `bye`: the peer meant it.
  void Down(int64_t now_ns, bool bye, const std::string& why);
  Moved Read(std::span<iovec> into) { return ReadSome(socket_.fd(), into); }

  Sender& sender_;
  FlowStats stats_;
  Socket socket_;
  uint32_t told_ = 0;  // by epoll, since it was last looked at

 private:
  bool ComeUp(int64_t now_ns);

  Worker& worker_;
  Dialer dialer_;
  uint64_t number_ = 0;
  uint32_t events_ = 0;
  std::atomic<bool> up_ = true;
  bool dialing_ = false;
  int64_t dial_at_ns_ = 0;
  int64_t pause_ns_ = 0;
  int64_t tick_ns_ = 0;
};

// Notes that a peer sends back, as they come.
class Notes {
 public:
  // False: the flow has ended, for `why`. `take` gets each note and says whether it can be.
  template <typename Take>
  // `to_the_end`: there may be an end behind the last note, of which nobody tells again.
  bool Read(int fd, bool to_the_end, std::string* why, bool* something, Take take);

 private:
  std::array<std::byte, 64 * kNoteBytes> bytes_ = {};
  size_t filled_ = 0;
};

// A bulk flow.
class SendFlow final : public Outgoing {
 public:
  static constexpr uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP;

  SendFlow(Sender& sender, Worker& worker, Dialer dialer);

  double rate() const { return shared_rate_.load(std::memory_order_relaxed); }
  // The same as FlowRate::Allowed; for the thread that works for this flow.
  double allowed() const { return rate_.Allowed(fastest_); }
  // A frame begins: what is remembered of it.
  FlowRate::Mark Begin(int64_t now_ns, uint64_t length, bool starved);
  int64_t DueNs(const FlowRate::Mark& mark) const;
  // The rate of the connection's fastest flow. In its own thread.
  void SetFastest(double rate) { fastest_ = rate; }
  bool idle() const { return undelivered_ == 0; }
  // It would take a chunk, as far as is known to other threads.
  bool free() const { return up() && !full_.load(std::memory_order_relaxed); }

  // Says bye. `pool` sees to it that it arrives.
  void Close(Pool& pool);

  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 protected:
  bool WorkUp(int64_t now_ns) override;
  void WentDown() override;
  int64_t NextUpNs() const override;

 private:
  bool ReadNotes(int64_t now_ns);
  bool Acknowledge(uint64_t frames, int64_t now_ns);
  bool Write(int64_t now_ns);
  Moved WriteFrame();
  bool Next(int64_t now_ns);
  void GiveBack();
  // The frame's bytes are not read by this flow any more; what the kernel holds, it reports.
  void LetGo();
  void Released(std::span<const uint64_t> requests);
  bool KernelReports(int64_t now_ns);
  void EndIfHeldTooLong(int64_t now_ns);
  void SayIfDyingTooLong(int64_t now_ns);

  FlowRate rate_;
  std::atomic<double> shared_rate_ = 0;
  double fastest_ = 0;
  std::atomic<bool> full_ = false;
  uint64_t undelivered_ = 0;
  std::deque<Frame> frames_;  // given and not acknowledged; the last may not be written yet
  uint64_t acknowledged_ = 0;
  uint64_t begun_ = 0;
  Notes notes_;

  bool writing_ = false;
  bool pinned_ = false;  // the frame's bytes are the application's, not `rescued_`
  bool writable_ = true;
  std::array<std::byte, kDataHeaderBytes> header_ = {};
  const std::byte* body_ = nullptr;
  size_t header_left_ = 0;
  size_t body_left_ = 0;
  std::vector<std::byte> rescued_;
  uint64_t reclaims_ = 0;
  int64_t late_look_ns_ = 0;

  ZeroCopy zero_copy_;
  std::vector<uint64_t> released_;  // of one look at the kernel's reports
  int64_t held_look_ns_ = 0;
  std::optional<uint64_t> held_;  // the kernel alone held this request at the last look
  bool dying_told_ = false;
};

// The flow of small messages. The application's thread writes it; the worker does what is left.
class ExpressOut final : public Outgoing {
 public:
  // Acknowledgements are looked for where they are needed: none wakes a thread.
  static constexpr uint32_t kEvents = EPOLLOUT | EPOLLRDHUP;

  using Outgoing::Outgoing;

  // False: it is down, and the message another flow's. `data` stays until it is acknowledged.
  bool Put(const DataHeader& header, const std::byte* data);
  // Looks whether something was acknowledged.
  void Look();
  void Close(Pool& pool);

  void Ready(uint32_t events) override;
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 protected:
  bool WorkUp(int64_t now_ns) override;
  void WentDown() override;
  int64_t NextUpNs() const override;

 private:
  bool Flush(int64_t now_ns);
  bool ReadNotes(int64_t now_ns);

  mutable std::mutex mutex_;
  std::deque<uint64_t> numbers_;  // written, or to be, and not acknowledged
  uint64_t acknowledged_ = 0;
  std::vector<std::byte> left_;  // what the socket did not take yet
  int64_t look_ns_ = 0;          // the worker's own
  Notes notes_;
};

template <typename Take>
bool Notes::Read(int fd, bool to_the_end, std::string* why, bool* something, Take take) {
  for (;;) {
    iovec rest = {bytes_.data() + filled_, bytes_.size() - filled_};
    const Moved moved = ReadSome(fd, {&rest, 1});
    if (moved.later()) return true;
    if (moved.error != 0 || moved.bytes == 0) {
      *why = moved.error != 0 ? ErrorWords(moved.error) : "the peer closed it";
      return false;
    }
    *something = true;
    filled_ += moved.bytes;
    size_t at = 0;
    for (; filled_ - at >= kNoteBytes; at += kNoteBytes) {
      const std::span<const std::byte> bytes(bytes_.data() + at, kNoteBytes);
      const std::optional<Note> note = DecodeNote(bytes.first<kNoteBytes>());
      if (!note || !take(*note)) {
        *why = "what the peer sent is no acknowledgement";
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

#endif  // NCCLTUNE_NET_SEND_FLOW_H_
