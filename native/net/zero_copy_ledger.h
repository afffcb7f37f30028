// SPDX-License-Identifier: Apache-2.0
//
// Records zero-copy sends whose pages the kernel may still read, and the requests of these sends.
// This code makes no system call.
#ifndef NCCLTUNE_NET_ZERO_COPY_LEDGER_H_
#define NCCLTUNE_NET_ZERO_COPY_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace nccltune::net {

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

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_LEDGER_H_
