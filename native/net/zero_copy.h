// SPDX-License-Identifier: Apache-2.0
// Zero-copy sends (MSG_ZEROCOPY) of one flow, and the kernel's reports of these sends. A flow is
// one TCP connection of an NCCL connection.
//
// A send is outstanding until the kernel reports that it has released all pages of the send. Only
// an open socket delivers reports. So the socket of a dead flow is kept until the reports of all
// its sends have arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "net/net_settings.h"
#include "net/socket.h"
#include "net/stats_page.h"

namespace nccltune::net {

// Decides whether a flow (a TCP connection) uses zero-copy sends, from the kernel's reports of
// earlier sends. This code makes no system call.

// Least number of bytes of a zero-copy send. Pinning pages and reading reports costs more than
// copying a few pages. The kernel's documentation names about 10 KB as the limit for one large
// write. Our separate calls for the header and for the report raise the limit.
inline constexpr size_t kLeastUncopied = 32 << 10;

class ZeroCopyChoice {
 public:
  enum class State {
    kOff,
    kTrial,    // one send at a time, until the first report arrives
    kKept,     // used: the kernel did not copy, or the mode is kAlways
    kDropped,  // never used again on this flow
  };

  explicit ZeroCopyChoice(ZeroCopyMode mode);

  // Returns whether the next `bytes` should be sent without a copy, while `outstanding` sends have
  // no report.
  bool Wants(size_t bytes, size_t outstanding) const {
    return (state_ == State::kKept || state_ == State::kTrial) && bytes >= kLeastUncopied &&
           outstanding < most_;
  }
  // Returns whether `error`, of the socket option or of a send, means that the kernel refuses
  // zero-copy.
  static bool Refuses(int error);
  void Refused(int error, size_t outstanding);
  // Records a report of the kernel. `copied`: the kernel copied the data.
  void Reported(bool copied);
  // Records that the flow was ended because a request waited only for the kernel's report.
  void HeldTooLong(int64_t now_ns);
  // Records that the flow has a new socket. In mode kAuto, a flow that used zero-copy starts a new
  // trial, because the new socket's path may be another one.
  void NewSocket();

  State state() const { return state_; }

 private:
  void Drop() { state_ = State::kDropped; }

  ZeroCopyMode mode_;
  State state_;
  size_t most_;  // limit of sends without a report
  std::optional<int64_t> held_ns_;
};

// Records zero-copy sends whose pages the kernel may still read, and the requests of these sends.
// This code makes no system call.

// The ledger of one socket. A frame carries one chunk of a request, and takes one or more sends.
// The kernel numbers the socket's MSG_ZEROCOPY sends from 0, modulo 2^32. When the kernel has
// released the pages of sends, it reports a range of their numbers. Ranges come in any order: data
// purged from the send queue is reported before data that a NIC still has.
class ZeroCopyLedger {
 public:
  // `first` is the number of the socket's next send.
  explicit ZeroCopyLedger(uint32_t first = 0) : first_(first) {}

  // Records a send of the current frame. If Sent throws, nothing has changed.
  void Sent(uint64_t request, uint64_t bytes);
  // Sets the size of the last send to the bytes that the kernel took.
  void Correct(uint64_t bytes) { sends_.back().bytes = bytes; }
  // Removes the last send, of which the kernel took nothing.
  void TakeBack();
  // Ends the current frame. Returns true if the kernel does not read the frame's buffer any more.
  // Otherwise a later Report appends the frame's request to `released`.
  bool Finish();

  // Number and bytes of the sends that one report has completed.
  struct Done {
    size_t sends = 0;
    uint64_t bytes = 0;
  };
  // Handles a report of the sends `first` to `last`, inclusive. Appends a request to `released` for
  // each frame whose buffer is no longer read.
  Done Report(uint32_t first, uint32_t last, std::vector<uint64_t>* released);

  // Returns the number of frames in the ledger. All frames that are not released are in the ledger.
  size_t frames() const { return frames_.size(); }
  void Swap(ZeroCopyLedger& other) noexcept;

  // Returns the number of sends without a report.
  size_t outstanding() const { return outstanding_; }
  // Returns the request of the oldest frame in the ledger; nothing if the ledger is empty.
  std::optional<uint64_t> oldest() const;

 private:
  struct Frame {
    uint64_t request = 0;
    size_t outstanding = 0;
    bool open = true;  // more sends of this frame may follow
  };
  struct Send {
    uint64_t frame = 0;
    uint64_t bytes = 0;
    bool done = false;
  };

  Frame& FrameOf(const Send& send) { return frames_[send.frame - first_frame_]; }
  bool HasSends(uint64_t frame) const;
  void Trim();

  uint32_t first_;  // the kernel's number of the first entry of sends_
  std::deque<Send> sends_;
  size_t outstanding_ = 0;
  uint64_t first_frame_ = 0;
  std::deque<Frame> frames_;  // only the last one may be open
};

// Returns whether the kernel supports MSG_ZEROCOPY for TCP.
bool KernelHasZeroCopy();

class ZeroCopy {
 public:
  ZeroCopy(ZeroCopyMode mode, Counters& counters) : choice_(mode), counters_(counters) {}

  // The following functions are for the current socket.

  // Returns whether the next `bytes` should be sent with Send.
  bool Wants(size_t bytes) const { return choice_.Wants(bytes, ledger_.outstanding()); }
  // Sends bytes of the current frame without a copy. Returns nothing if the kernel refuses that;
  // then the bytes must be sent with a copy.
  std::optional<IoResult> Send(int fd, uint64_t request, std::span<const std::byte> bytes);
  // Ends the current frame. Returns false if the kernel still reads the frame's buffer. Then
  // Reports or ReadDyingReports returns the frame's request later.
  bool Finish() { return ledger_.Finish(); }

  bool outstanding() const { return ledger_.outstanding() != 0; }
  // Returns the request that the kernel has held for the longest time; nothing if it holds none.
  std::optional<uint64_t> oldest() const { return ledger_.oldest(); }
  // Reads the kernel's reports. Returns false if there are none. Appends a request to `released`
  // for each frame whose buffer is no longer read.
  bool Reports(int fd, std::vector<uint64_t>* released);
  // Records that the flow is ended because a request waited only for the kernel's report.
  void HeldTooLong(int64_t now_ns);

  // Gives up the current socket; later calls are for a new socket. If sends are outstanding,
  // disconnects the socket so that nothing more is sent. If sends are still outstanding then, takes
  // ownership of `*socket` until all sends are reported; otherwise the caller keeps the socket. If
  // Abandon throws, nothing has changed.
  void Abandon(Descriptor* socket, int64_t now_ns, std::vector<uint64_t>* released);
  // Resets the connection but keeps the socket open. The kernel drops its send queue.
  static void Disconnect(int fd);

  // The following functions are for abandoned sockets. ReadDyingReports does for them what Reports
  // does for the current socket.

  bool dying() const { return !dying_.empty(); }
  bool ReadDyingReports(std::vector<uint64_t>* released);
  // Returns the time at which the oldest abandoned socket was abandoned. dying() must be true.
  int64_t dying_since_ns() const { return dying_.front().since_ns; }
  // Waits at most a quarter of a second for the remaining reports of abandoned sockets.
  void AwaitDying();

 private:
  // Reads the kernel's reports from the error queue of `fd` into `ledger`. Returns false if there
  // are none. `up`: `fd` is the current socket.
  bool Read(int fd, ZeroCopyLedger& ledger, bool up, std::vector<uint64_t>* released);
  // Counts the flow in `zero_copy_drops` once, when its state is kDropped.
  void CountDrop();

  ZeroCopyChoice choice_;
  Counters& counters_;
  ZeroCopyLedger ledger_;
  bool allowed_ = false;  // SO_ZEROCOPY is set on the socket
  bool counted_ = false;
  struct Dying {
    Descriptor socket;
    ZeroCopyLedger ledger;
    int64_t since_ns = 0;
  };
  std::list<Dying> dying_;
};

}  // namespace nccltune::net
