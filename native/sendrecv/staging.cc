// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/staging.h"

namespace nccltune::sendrecv {
namespace {

// The alignment of CUDA's allocations.
constexpr uint64_t kAlignment = 512;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::optional<Staging::Region> Staging::Find(uint64_t bytes) const {
  const uint64_t wanted = Aligned(bytes);
  if (wanted > capacity_) return std::nullopt;
  uint64_t begin = head_;
  // A region is contiguous. If the message does not fit before the end of the ring, skip the bytes
  // up to the end.
  const uint64_t left = capacity_ - begin % capacity_;
  if (wanted > left) begin += left;
  Region region = {
      .at = base_ + begin % capacity_, .wait_for = {}, .begin = begin, .end = begin + wanted};
  for (const HeldRegion& oldest : held_) {
    if (!Overlaps(oldest, region.end)) break;
    const Completion& message = oldest.message;
    if (!Reached(message.done->load(), message.value)) region.wait_for.push_back(message);
  }
  return region;
}

void Staging::Take(const Region& region, Flag& done, uint32_t value) {
  head_ = region.end;
  while (!held_.empty() && Overlaps(held_.front(), head_)) held_.pop_front();
  held_.push_back({.begin = region.begin, .message = {.done = &done, .value = value}});
}

}  // namespace nccltune::sendrecv
