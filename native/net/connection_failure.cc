// SPDX-License-Identifier: Apache-2.0
#include "net/connection_failure.h"

#include <utility>

#include "common/contain.h"
#include "net/clock.h"

namespace nccltune::net {
namespace {

// A connection fails if its peer's host has closed all flows, and none came up for this long.
constexpr int kClosedTimeoutS = 10;

}  // namespace

void ConnectionFailure::Set(abi::Result result, std::string_view why, bool waiting,
                            uint64_t bytes) noexcept {
  if (failed()) return;
  Contain(
      [&] {
        unwarned_ = what_ + (waiting ? " failed with " : " ended with ") + std::to_string(bytes) +
                    " bytes outstanding: " + std::string(why);
        waiting ? log_.Warn(std::exchange(unwarned_, {})) : log_.Info(unwarned_);
      },
      [&](const char* /*what*/) { log_.Warn(why); });
  error_ = result;
}

abi::Result ConnectionFailure::Refuse() {
  if (!unwarned_.empty()) log_.Warn(std::exchange(unwarned_, {}));
  return result();
}

void ConnectionFailure::FlowsChanged(int64_t now_ns, bool any_up, const SocketEnd& end) {
  if (end.why.empty()) {
    is_outage_ = false;
  } else {
    why_down_ = end.why;
    is_outage_ |= end.is_outage;
  }
  if (any_up) {
    all_down_ns_ = 0;
  } else if (all_down_ns_ == 0) {
    all_down_ns_ = now_ns;
  }
}

std::string ConnectionFailure::NoFlow(int64_t now_ns) const {
  if (all_down_ns_ == 0) return {};
  const int limit_s = is_outage_ ? down_timeout_s_ : kClosedTimeoutS;
  if (limit_s == 0 || now_ns - all_down_ns_ <= limit_s * kNsPerSecond) return {};
  return "no flow for " + std::to_string(limit_s) + " s: " + why_down_;
}

}  // namespace nccltune::net
