// SPDX-License-Identifier: Apache-2.0
#include "net/connection_failure.h"

#include <utility>

#include "common/contain.h"
#include "net/clock.h"

namespace nccltune::net {
namespace {

// A connection fails if no flow was up for this long.
constexpr int64_t kAllDownNs = 10 * kNsPerSecond;

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

void ConnectionFailure::FlowsChanged(int64_t now_ns, bool any_up, std::string_view why) {
  if (!why.empty()) why_down_ = why;
  if (any_up) {
    all_down_ns_ = 0;
  } else if (all_down_ns_ == 0) {
    all_down_ns_ = now_ns;
  }
}

std::string ConnectionFailure::NoFlow(int64_t now_ns) const {
  if (all_down_ns_ == 0 || now_ns - all_down_ns_ <= kAllDownNs) return {};
  return "no flow for 10 s: " + why_down_;
}

}  // namespace nccltune::net
