// SPDX-License-Identifier: Apache-2.0
//
// Decides whether a flow uses zero-copy sends, from the kernel's reports of earlier ones. Pure.
#ifndef NCCLTUNE_NET_ZERO_COPY_CHOICE_H_
#define NCCLTUNE_NET_ZERO_COPY_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "net/net_settings.h"

namespace nccltune::net {

// The least size for a zero-copy send. Pinning pages and reading reports costs more than copying a
// few pages: about 10 KB for one large write by the kernel's documentation. Our extra calls for
// the header and the report raise that.
inline constexpr size_t kLeastUncopied = 32 << 10;

class ZeroCopyChoice {
 public:
  enum class State {
    kOff,
    kTrial,    // one send at a time, until its report arrives
    kKept,     // the kernel did not copy
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
  // A report of a send has arrived.
  void Reported(bool copied);
  // A request was complete except for the kernel's report, and its flow was ended because of that.
  void HeldTooLong(int64_t now_ns);
  // A new socket, perhaps on another path.
  void NewSocket();

  State state() const { return state_; }

 private:
  void Drop() { state_ = State::kDropped; }

  ZeroCopyMode mode_;
  State state_;
  size_t most_;  // most sends without a report
  std::optional<int64_t> held_ns_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_CHOICE_H_
