// SPDX-License-Identifier: Apache-2.0
#include "net/path_watch.h"

#include "net/clock.h"

namespace nccltune::net {
namespace {

// Number of checks within the time limit.
constexpr int64_t kChecks = 8;

}  // namespace

PathWatch::PathWatch(int path_timeout_ms) : limit_ns_(path_timeout_ms * kNsPerMs) {}

bool PathWatch::IsDead(int64_t now_ns, const PathFacts& facts) {
  next_ns_ = now_ns + limit_ns_ / kChecks;
  if (facts.unacknowledged == 0 && facts.probes == 0) {
    owed_since_ns_.reset();
    armed_ = facts.unsent != 0;
    return false;
  }
  const int64_t answered_ns = now_ns - facts.last_answer_ago_ns;
  // The unacknowledged data may have been sent after the peer's last answer. So the time limit
  // starts at this check.
  if (!owed_since_ns_ || answered_ns > *owed_since_ns_) owed_since_ns_ = now_ns;
  return now_ns - *owed_since_ns_ >= limit_ns_;
}

void PathWatch::Reset() {
  armed_ = false;
  next_ns_ = 0;
  owed_since_ns_.reset();
}

}  // namespace nccltune::net
