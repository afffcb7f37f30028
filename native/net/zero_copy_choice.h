// SPDX-License-Identifier: Apache-2.0
//
// Decides whether a flow (a TCP connection) uses zero-copy sends, from the kernel's reports of
// earlier sends. This code makes no system call.
#ifndef NCCLTUNE_NET_ZERO_COPY_CHOICE_H_
#define NCCLTUNE_NET_ZERO_COPY_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "net/net_settings.h"

namespace nccltune::net {

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

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_CHOICE_H_
