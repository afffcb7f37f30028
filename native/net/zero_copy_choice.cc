// SPDX-License-Identifier: Apache-2.0
#include "net/zero_copy_choice.h"

#include <algorithm>
#include <cerrno>

#include "net/clock.h"

namespace nccltune::net {
namespace {

constexpr size_t kNoLimit = SIZE_MAX;
constexpr size_t kOfATrial = 1;
// A flow drops zero-copy if a request was held too long twice within this time. Rare events in a
// job of weeks do not count.
constexpr int64_t kHeldAgainNs = 60 * kNsPerSecond;

}  // namespace

ZeroCopyChoice::ZeroCopyChoice(ZeroCopyMode mode)
    : mode_(mode), state_(State::kOff), most_(kNoLimit) {
  if (mode == ZeroCopyMode::kAlways) state_ = State::kKept;
  if (mode == ZeroCopyMode::kAuto) {
    state_ = State::kTrial;
    most_ = kOfATrial;
  }
}

bool ZeroCopyChoice::Refuses(int error) {
  switch (error) {
    case ENOBUFS:  // optmem_max or RLIMIT_MEMLOCK is reached
    case ENOMEM:
    case EPERM:
    case EACCES:
    case EFAULT:  // device memory, whose pages cannot be pinned
    case EINVAL:
    case EOPNOTSUPP:
    case ENOPROTOOPT:  // Linux before 4.14
      return true;
    default:
      return false;
  }
}

void ZeroCopyChoice::Refused(int error, size_t outstanding) {
  // ENOBUFS means that the kernel's limit for reports or locked memory is reached. Use fewer sends
  // at a time.
  if (error == ENOBUFS && outstanding != 0) {
    most_ = std::min(most_, outstanding);
  } else {
    Drop();
  }
}

void ZeroCopyChoice::Reported(bool copied) {
  if (mode_ != ZeroCopyMode::kAuto) return;
  if (copied) {
    Drop();
  } else if (state_ == State::kTrial) {
    state_ = State::kKept;
    most_ = kNoLimit;
  }
}

void ZeroCopyChoice::HeldTooLong(int64_t now_ns) {
  if (mode_ != ZeroCopyMode::kAuto) return;
  if (held_ns_ && now_ns - *held_ns_ < kHeldAgainNs) Drop();
  held_ns_ = now_ns;
}

void ZeroCopyChoice::NewSocket() {
  if (mode_ != ZeroCopyMode::kAuto || state_ != State::kKept) return;
  state_ = State::kTrial;
  most_ = kOfATrial;
}

}  // namespace nccltune::net
