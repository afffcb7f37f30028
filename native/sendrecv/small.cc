// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/small.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "sendrecv/counts.h"

namespace nccltune::sendrecv {

std::optional<nccl::Result> SmallCalls::Run(const Native& native, bool grouped, uint64_t changes) {
  if (changes != changes_) return {};
  const std::scoped_lock lock(communicator_->mutex());
  Underway& underway = communicator_->underway();
  if (communicator_->troubled() || !underway.BeginAgain(number_)) return {};
  const nccl::Result result = CallAll(native, taken_, grouped);
  underway.EndAgain();
  // Meanwhile: it may wait for whoever is gone.
  if (communicator_->troubled()) {
    underway.Enqueued({.stream = stream_, .ours = false, .native = peers_});
  }
  taken_ = 0;
  return result;
}

std::vector<Call> SmallCalls::Return() {
  std::vector<Call> calls;
  for (size_t i = 0; i < taken_; ++i) {
    const One& one = all_[i];
    calls.push_back({.role = one.role,
                     .buffer = one.buffer,
                     .count = one.count,
                     .type = one.type,
                     .peer = one.peer,
                     .comm = comm_,
                     .stream = stream_,
                     .communicator = nullptr});
  }
  taken_ = 0;
  return calls;
}

std::optional<nccl::Result> SmallCalls::RunNew(const CallGroup& group, const Native& native,
                                               uint64_t changes) {
  taken_ = size_ = 0;
  const Call& first = group.calls.front();
  Communicator& communicator = *first.communicator;
  if (!communicator.blocks()) return {};
  const std::scoped_lock lock(communicator.mutex());
  if (communicator.troubled()) return {};
  all_.clear();
  peers_.clear();
  for (const Call& call : group.calls) {
    if (call.communicator != first.communicator || call.stream != first.stream) return {};
    const uint64_t below = std::min(communicator.FloorOf(call.peer), communicator.options().from);
    if (call.bytes() >= below) return {};
    const Port* const port = communicator.FindPort(call.peer, call.role, false);
    const size_t element = nccl::SizeOf(call.type);
    all_.push_back({.most = (below - 1) / element,
                    .peer = call.peer,
                    .type = call.type,
                    .size = static_cast<uint32_t>(element),
                    .role = call.role,
                    .end = port == nullptr ? nullptr : port->end,
                    .buffer = call.buffer,
                    .count = call.count});
    peers_.push_back(call.peer);
  }
  comm_ = first.comm;
  stream_ = first.stream;
  communicator_ = &communicator;
  changes_ = changes;
  Underway& underway = communicator.underway();
  underway.BeginNative(peers_);
  const nccl::Result result = CallAll(native, all_.size(), group.grouped);
  underway.Enqueued({.stream = stream_, .ours = false, .native = peers_});
  number_ = underway.Remember(stream_, peers_);
  if (number_ != 0) size_ = static_cast<uint32_t>(all_.size());
  return result;
}

nccl::Result SmallCalls::CallAll(const Native& native, size_t size, bool grouped) {
  nccl::Result result = abi::kSuccess;
  uint64_t bytes = 0;
  for (const One& one : std::span(all_).first(size)) {
    if (one.end != nullptr) one.end->Pass();
    bytes += one.count * one.size;
    const nccl::Result called =
        one.role == Role::kSender
            ? native.Send(one.buffer, one.count, one.type, one.peer, comm_, stream_)
            : native.Recv(one.buffer, one.count, one.type, one.peer, comm_, stream_);
    if (called != abi::kSuccess) result = called;
  }
  TheCounts().Add(Way::kSmall, bytes, size);
  if (!grouped) return result;
  const nccl::Result ended = native.GroupEnd();
  return result == abi::kSuccess ? ended : result;
}

}  // namespace nccltune::sendrecv
