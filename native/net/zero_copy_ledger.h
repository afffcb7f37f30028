// SPDX-License-Identifier: Apache-2.0
//
// Zero-copy sends whose pages the kernel may still read, and their requests. Pure.
#ifndef NCCLTUNE_NET_ZERO_COPY_LEDGER_H_
#define NCCLTUNE_NET_ZERO_COPY_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace nccltune::net {

// The ledger of one socket. The kernel numbers its MSG_ZEROCOPY sends from 0, modulo 2^32. It
// reports ranges of these numbers when it has released their pages. Ranges come in any order: data
// purged from the send queue is reported before data that a NIC still has.
class ZeroCopyLedger {
 public:
  // `first` is the number of the socket's next send.
  explicit ZeroCopyLedger(uint32_t first = 0) : first_(first) {}

  // Records a send of the current frame. If it throws, nothing has changed.
  void Sent(uint64_t request, uint64_t bytes);
  // Corrects the size of the last send.
  void Correct(uint64_t bytes) { sends_.back().bytes = bytes; }
  void TakeBack();
  // Ends the current frame. Returns true if nobody reads its buffer any more. Otherwise a later
  // Report appends its request to `released`.
  bool Finish();

  // The sends, and their bytes, that one report has completed.
  struct Done {
    size_t sends = 0;
    uint64_t bytes = 0;
  };
  // Handles a report of the sends `first` to `last`, inclusive. Appends a request to `released` for
  // each frame whose buffer is no longer read.
  Done Report(uint32_t first, uint32_t last, std::vector<uint64_t>* released);

  // Returns the number of frames that are not released.
  size_t frames() const { return frames_.size(); }
  void Swap(ZeroCopyLedger& other) noexcept;

  // Returns the number of sends without a report.
  size_t outstanding() const { return outstanding_; }
  // Returns the request of the oldest frame in the ledger.
  std::optional<uint64_t> oldest() const;

 private:
  struct Frame {
    uint64_t request = 0;
    size_t outstanding = 0;
    bool open = true;  // more of it may be sent
  };
  struct Send {
    uint64_t frame = 0;
    uint64_t bytes = 0;
    bool done = false;
  };

  Frame& FrameOf(const Send& send) { return frames_[send.frame - first_frame_]; }
  bool HasSends(uint64_t frame) const;
  void Trim();

  uint32_t first_;  // number of the first of sends_
  std::deque<Send> sends_;
  size_t outstanding_ = 0;
  uint64_t first_frame_ = 0;
  std::deque<Frame> frames_;  // the last may be open
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_LEDGER_H_
