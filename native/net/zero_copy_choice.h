// SPDX-License-Identifier: Apache-2.0
//
// Whether a flow sends without a copy: by what the kernel said of its earlier sends. Pure.
#ifndef NCCLTUNE_NET_ZERO_COPY_CHOICE_H_
#define NCCLTUNE_NET_ZERO_COPY_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "net/net_settings.h"

namespace nccltune::net {

// To pin pages and to be told costs more than to copy a few of them: the kernel's documentation
// says about 10 KB for one large write; with a call for the header, and one for the report, more.
inline constexpr size_t kLeastUncopied = 32 << 10;

class ZeroCopyChoice {
 public:
  enum class State {
    kOff,
    kTrial,    // one send, until the kernel says what became of it
    kKept,     // it was not copied
    kDropped,  // for good
  };

  explicit ZeroCopyChoice(ZeroCopyMode mode);

  // Whether the next `bytes` should go without a copy, where `outstanding` sends have no report.
  bool Wants(size_t bytes, size_t outstanding) const {
    return (state_ == State::kKept || state_ == State::kTrial) && bytes >= kLeastUncopied &&
           outstanding < most_;
  }
  // The kernel would not: `error` is that of the socket's option or of a send. Which errors say so.
  static bool Refuses(int error);
  void Refused(int error, size_t outstanding);
  // A send has ended.
  void Reported(bool copied);
  // An otherwise complete request had to wait for the kernel, and the flow was ended for it.
  void HeldTooLong(int64_t now_ns);
  // Another connection, perhaps on another path.
  void NewSocket();

  State state() const { return state_; }

 private:
  void Drop() { state_ = State::kDropped; }

  ZeroCopyMode mode_;
  State state_;
  size_t most_;  // sends without a report
  std::optional<int64_t> held_ns_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_CHOICE_H_
