// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/staging.h"

namespace nccltune::sendrecv {
namespace {

// As allocations of CUDA are.
constexpr uint64_t kAlignment = 512;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::optional<Staging::Room> Staging::Take(uint64_t bytes, Flag& done, uint32_t value) {
  const uint64_t wanted = Aligned(bytes);
  if (wanted > capacity_) return std::nullopt;
  uint64_t begin = head_;
  // In one piece: what is left at the end is left out.
  const uint64_t left = capacity_ - begin % capacity_;
  if (wanted > left) begin += left;
  head_ = begin + wanted;
  Room room = {.at = base_ + begin % capacity_, .before = {}};
  while (!held_.empty() && head_ > held_.front().begin + capacity_) {
    const Before& oldest = held_.front().message;
    if (!Reached(oldest.done->load(), oldest.value)) room.before.push_back(oldest);
    held_.pop_front();
  }
  held_.push_back({.begin = begin, .message = {.done = &done, .value = value}});
  return room;
}

}  // namespace nccltune::sendrecv
