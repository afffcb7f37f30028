// SPDX-License-Identifier: Apache-2.0
//
// Which sends without a copy the kernel may still read, and of which requests they are. Pure.
#ifndef NCCLTUNE_NET_ZERO_COPY_LEDGER_H_
#define NCCLTUNE_NET_ZERO_COPY_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace nccltune::net {

// Of one socket. The kernel numbers the sends of a socket that it took with MSG_ZEROCOPY, from 0 on
// and modulo 2^32, and reports ranges of these numbers when it has let go of their pages. Ranges
// come in any order: what is purged from a socket's queue is reported before what a NIC still has.
class ZeroCopyLedger {
 public:
  // `first`: the number of the socket's next send.
  explicit ZeroCopyLedger(uint32_t first = 0) : first_(first) {}

  // The kernel took so many bytes of the frame that is being written.
  void Sent(uint64_t request, uint64_t bytes);
  // No more of that frame is read from the application's buffer by us. True: nor by the kernel;
  // false: `released` will have its request.
  bool Finish();

  // What a report told of: sends that were outstanding, and their bytes.
  struct Done {
    size_t sends = 0;
    uint64_t bytes = 0;
  };
  // Inclusive. One request more in `released` for each frame that nobody reads any more.
  Done Report(uint32_t first, uint32_t last, std::vector<uint64_t>* released);

  // Sends that are not reported.
  size_t outstanding() const { return outstanding_; }
  // The request of the oldest frame that is held.
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
  void Trim();

  uint32_t first_;  // of sends_
  std::deque<Send> sends_;
  size_t outstanding_ = 0;
  uint64_t first_frame_ = 0;
  std::deque<Frame> frames_;  // the last may be open
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_LEDGER_H_
