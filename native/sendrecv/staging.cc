// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/staging.h"

namespace nccltune::sendrecv {
namespace {

// As allocations of CUDA are.
constexpr uint64_t kAlignment = 512;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::optional<Staging::Room> Staging::Find(uint64_t bytes) const {
  const uint64_t wanted = Aligned(bytes);
  if (wanted > capacity_) return std::nullopt;
  uint64_t begin = head_;
  // In one piece: what is left at the end is left out.
  const uint64_t left = capacity_ - begin % capacity_;
  if (wanted > left) begin += left;
  Room room = {
      .at = base_ + begin % capacity_, .before = {}, .begin = begin, .end = begin + wanted};
  for (const Held& oldest : held_) {
    if (!IsInTheWay(oldest, room.end)) break;
    const Before& message = oldest.message;
    if (!Reached(message.done->load(), message.value)) room.before.push_back(message);
  }
  return room;
}

void Staging::Take(const Room& room, Flag& done, uint32_t value) {
  head_ = room.end;
  while (!held_.empty() && IsInTheWay(held_.front(), head_)) held_.pop_front();
  held_.push_back({.begin = room.begin, .message = {.done = &done, .value = value}});
}

}  // namespace nccltune::sendrecv
