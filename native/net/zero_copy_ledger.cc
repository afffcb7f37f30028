// SPDX-License-Identifier: Apache-2.0
#include "net/zero_copy_ledger.h"

#include <algorithm>
#include <utility>

namespace nccltune::net {

void ZeroCopyLedger::Sent(uint64_t request, uint64_t bytes) {
  const bool begins = frames_.empty() || !frames_.back().open;
  sends_.push_back({.frame = first_frame_ + frames_.size() - (begins ? 0 : 1), .bytes = bytes});
  try {
    if (begins) frames_.push_back({.request = request});
  } catch (...) {
    sends_.pop_back();
    throw;
  }
  ++frames_.back().outstanding;
  ++outstanding_;
}

void ZeroCopyLedger::TakeBack() {
  sends_.pop_back();
  --outstanding_;
  // A frame without a send is not kept.
  if (--frames_.back().outstanding == 0 && !HasSends(first_frame_ + frames_.size() - 1)) {
    frames_.pop_back();
  }
}

// Returns whether `sends_` has a send of the last frame. Reported sends stay in `sends_` while an
// older send is not reported.
bool ZeroCopyLedger::HasSends(uint64_t frame) const {
  return !sends_.empty() && sends_.back().frame == frame;
}

void ZeroCopyLedger::Swap(ZeroCopyLedger& other) noexcept {
  std::swap(first_, other.first_);
  sends_.swap(other.sends_);
  std::swap(outstanding_, other.outstanding_);
  std::swap(first_frame_, other.first_frame_);
  frames_.swap(other.frames_);
}

bool ZeroCopyLedger::Finish() {
  if (frames_.empty() || !frames_.back().open) return true;
  frames_.back().open = false;
  if (frames_.back().outstanding != 0) return false;
  Trim();
  return true;
}

ZeroCopyLedger::Done ZeroCopyLedger::Report(uint32_t first, uint32_t last,
                                            std::vector<uint64_t>* released) {
  // Start of the range as an index into `sends_`; negative if sends of the range were removed
  // already.
  const int64_t begin = static_cast<int32_t>(first - first_);
  const int64_t end = begin + static_cast<int64_t>(last - first) + 1;
  const auto size = static_cast<int64_t>(sends_.size());
  Done done;
  for (int64_t i = std::max<int64_t>(begin, 0); i < std::min(end, size); ++i) {
    Send& send = sends_[static_cast<size_t>(i)];
    if (send.done) continue;
    send.done = true;
    --outstanding_;
    ++done.sends;
    done.bytes += send.bytes;
    Frame& frame = FrameOf(send);
    --frame.outstanding;
    if (frame.outstanding == 0 && !frame.open) released->push_back(frame.request);
  }
  Trim();
  return done;
}

std::optional<uint64_t> ZeroCopyLedger::oldest() const {
  if (frames_.empty()) return std::nullopt;
  return frames_.front().request;
}

void ZeroCopyLedger::Trim() {
  while (!sends_.empty() && sends_.front().done) {
    sends_.pop_front();
    ++first_;
  }
  while (!frames_.empty() && !frames_.front().open && frames_.front().outstanding == 0) {
    frames_.pop_front();
    ++first_frame_;
  }
}

}  // namespace nccltune::net
