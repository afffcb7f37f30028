// SPDX-License-Identifier: Apache-2.0
// The part of a communicator that finds lost peers and failures, and ends waits for them.
#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>

#include "common/content_hash.h"
#include "sendrecv/group/communicator.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

// A peer is lost when its lock has been free for so long. A living peer takes its lock again five
// times a second.
constexpr auto kLostAfter = std::chrono::seconds(1);
// After this time streams that wait for a lost peer continue without the peer's bytes. A program
// that polls for errors has seen the error and aborted long before.
constexpr auto kReleaseAfter = std::chrono::seconds(10);

LaneMemory::Broken StateAfter(uint32_t abandoned) {
  return abandoned == RankRecord::kEnded ? LaneMemory::kEnded : LaneMemory::kBrokenIdle;
}

}  // namespace

void Communicator::Fail(const std::string& why, nccl::Result result) {
  if (failure_.why.empty()) failure_ = {.why = why, .result = result};
  needs_check_.store(true);
}

void Communicator::Abandon(const std::string& why, RankRecord::Abandoned how) {
  const std::scoped_lock lock(lanes_mutex_);
  Fail(why, abi::kRemoteError);
  if (segment_ == nullptr) return;
  // Keep an earlier state: a failed communicator stays failed when the application ends it.
  uint32_t used = RankRecord::kUsed;
  segment_->memory().records[place_].abandoned.compare_exchange_strong(used, how);
  for (auto& [rank, peer] : watched_) Release(peer, StateAfter(how));
}

void Communicator::Release(WatchedPeer& peer, LaneMemory::Broken state) {
  peer.released = true;
  for (const auto& [lane, name] : peer.lanes) sendrecv::BreakLane(*lane, state);
}

bool Communicator::IsLost(WatchedPeer& peer, bool processes, std::string* why) {
  const RankRecord& record = segment_->memory().records[peer.place];
  if (record.abandoned.load() != RankRecord::kUsed ||
      std::ranges::any_of(peer.lanes, [](const auto& lane) {
        return lane.first->broken.load() != LaneMemory::kUsable;
      })) {
    *why = " has abandoned the communicator";
    return true;
  }
  if (!processes) return false;
  const auto now = Clock::now();
  if (segment_->IsAlive(peer.place)) peer.last_alive = now;
  // A living process locks its place again: see Segment::KeepPlaces.
  if (now - peer.last_alive < kLostAfter) return false;
  *why = " has ended";
  return true;
}

// A lost peer is an error only while messages with it are incomplete.
void Communicator::FindLostPeers(bool processes) {
  if (segment_ == nullptr || !failure_.why.empty()) return;
  for (auto& [rank, peer] : watched_) {
    std::string why;
    if (!peer.lost_why.empty() || !IsLost(peer, processes, &why)) continue;
    peer.lost_why = "rank " + std::to_string(rank);
    peer.lost_why += why;
    peer.lost_at = Clock::now();
    needs_check_.store(true);
    enqueued_work_->PeerLost(rank);
    bool incomplete = false;
    for (const auto& [lane, name] : peer.lanes) {
      incomplete = incomplete || lane->broken.load() == LaneMemory::kBrokenIncomplete ||
                   HasIncomplete(*lane);
      const uint32_t how = segment_->memory().records[peer.place].abandoned.load();
      MarkBroken(*lane, incomplete ? LaneMemory::kBrokenIncomplete : StateAfter(how));
      const std::string mismatch = FindMismatch(*lane);
      if (!mismatch.empty()) {
        Fail(std::string(name).append(": ").append(mismatch), abi::kInvalidUsage);
      }
    }
    if (incomplete) Fail(peer.lost_why, abi::kRemoteError);
  }
}

// A wait kernel has ended without its peer, or was ended because its launch blocks.
void Communicator::FindExpiredWaits() {
  if (segment_ == nullptr || !options_.policy.kernel_waits) return;
  // Also after a failure: a launch that blocks does not end with the lanes.
  const bool blocked = driver_->EndBlockedLaunch();
  if (blocked) {
    const std::string why =
        "the launch of a kernel has not returned for 10 s, so a debugger or a profiler makes "
        "launches wait for their kernels; set NCCLTUNE_SENDRECV=0 with it";
    Warn(why);
    Fail(why, abi::kRemoteError);
  } else if (!failure_.why.empty()) {
    return;
  }
  for (const auto& [rank, peer] : watched_) {
    for (const auto& [lane, name] : peer.lanes) {
      if (lane->expired.load() == 0) continue;
      Fail(name + ": a message is not complete after NCCLTUNE_SENDRECV_WAIT_LIMIT",
           abi::kRemoteError);
    }
  }
  if (failure_.why.empty()) return;
  uint32_t used = RankRecord::kUsed;
  segment_->memory().records[place_].abandoned.compare_exchange_strong(used, RankRecord::kFailed);
  for (auto& [rank, peer] : watched_) Release(peer, StateAfter(RankRecord::kFailed));
}

void Communicator::CheckPeers() {
  const std::scoped_lock lock(lanes_mutex_);
  if (segment_ != nullptr) segment_->KeepPlaces();
  FindExpiredWaits();
  FindLostPeers(true);
  const auto now = Clock::now();
  const bool late = std::ranges::any_of(watched_, [&](const auto& each) {
    return !each.second.lost_why.empty() && now - each.second.lost_at > kReleaseAfter;
  });
  const bool counted = options_.policy.vccl || options_.policy.graphs;
  for (auto& [rank, peer] : watched_) {
    const bool waits = !failure_.why.empty() || !peer.lost_why.empty();
    if (late && waits && !peer.released) Release(peer, LaneMemory::kBrokenIdle);
    if (!counted || !peer.released) continue;
    for (const auto& [lane, name] : peer.lanes) sendrecv::EndRepeatedWaits(*lane);
  }
}

std::string Communicator::DescribeIncompleteMessages() {
  const std::scoped_lock lock(lanes_mutex_);
  // The hash of the key distinguishes two communicators with the same ranks.
  std::ostringstream name;
  name << "communicator " << std::hex << (ContentHash(key_) & 0xffff) << ", ";
  std::string words;
  for (const auto& [rank, peer] : watched_) {
    for (const auto& [lane, lane_name] : peer.lanes) {
      words += sendrecv::DescribeIncompleteMessages(*lane, name.str() + lane_name);
    }
  }
  return words;
}

Communicator::FailureInfo Communicator::Failure() {
  const std::scoped_lock lock(lanes_mutex_);
  // First, because the peer sees the same flag and may have abandoned the communicator by now.
  FindExpiredWaits();
  FindLostPeers(false);
  if (segment_ == nullptr || !failure_.why.empty()) return failure_;
  for (const auto& [rank, peer] : watched_) {
    if (!peer.lost_why.empty() && enqueued_work_->MayWaitFor(rank, peer.lost_at)) {
      return {.why = peer.lost_why};
    }
  }
  return {};
}

}  // namespace nccltune::sendrecv
