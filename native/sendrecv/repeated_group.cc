// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/repeated_group.h"

#include <algorithm>
#include <mutex>

#include "sendrecv/counts.h"

namespace nccltune::sendrecv {

template <typename Call>
std::optional<nccl::Result> RepeatedGroup::Run(uint64_t changes, const Call& call) {
  if (changes != changes_) return {};
  const std::scoped_lock lock(communicator_->mutex());
  EnqueuedWork& enqueued_work = communicator_->enqueued_work();
  if (communicator_->needs_check() || !enqueued_work.BeginRepeat(number_)) return {};
  uint64_t bytes = 0;
  for (const RememberedCall& known : calls_) {
    if (known.end != nullptr) known.end->CountNative();
    bytes += known.count * known.size;
  }
  const nccl::Result result = call();
  enqueued_work.EndRepeat();
  // A peer was lost during the call, so NCCL's work may wait for that peer. Track the work by an
  // event.
  if (communicator_->needs_check()) {
    enqueued_work.Enqueued({.stream = stream_, .ours = false, .native = peers_});
  }
  if (result == abi::kSuccess) {
    ProcessCounts().Add(Route::kSmall, bytes, calls_.size());
  } else {
    Uncount();
  }
  next_ = 0;
  return result;
}

std::optional<nccl::Result> RepeatedGroup::End(const Native& native, uint64_t changes) {
  return Run(changes, [&] { return native.GroupEnd(); });
}

std::optional<nccl::Result> RepeatedGroup::CallAlone(const Native& native, void* buffer,
                                                     uint64_t changes) {
  const RememberedCall& known = calls_.front();
  return Run(changes, [&] {
    return known.role == Role::kSender
               ? native.Send(buffer, known.count, known.type, known.peer, comm_, stream_)
               : native.Recv(buffer, known.count, known.type, known.peer, comm_, stream_);
  });
}

// Takes back the counts of the group's messages: NCCL refused the group, so they never run.
void RepeatedGroup::Uncount() {
  for (const RememberedCall& known : calls_) {
    if (known.end != nullptr) known.end->UncountNative();
  }
}

std::vector<MessageCall> RepeatedGroup::StopRepeating() {
  std::vector<MessageCall> calls;
  for (uint32_t i = 0; i < next_; ++i) {
    const RememberedCall& known = calls_[i];
    calls.push_back({.role = known.role,
                     .buffer = nullptr,
                     .count = known.count,
                     .type = known.type,
                     .peer = known.peer,
                     .comm = comm_,
                     .stream = stream_,
                     .communicator = nullptr,
                     .eligible = false});
  }
  next_ = end_ = 0;
  return calls;
}

bool RepeatedGroup::Add(const MessageCall& call) {
  Communicator& communicator = *call.communicator;
  const uint64_t below = std::min(communicator.FloorOf(call.peer), communicator.options().from);
  if (&communicator != communicator_ || call.stream != stream_ || call.bytes() >= below) {
    return false;
  }
  const Port* const port = communicator.FindPort(call.peer, call.role, false);
  const size_t element = nccl::SizeOf(call.type);
  calls_.push_back({.small_limit = (below - 1) / element,
                    .peer = call.peer,
                    .type = call.type,
                    .size = static_cast<uint32_t>(element),
                    .role = call.role,
                    .end = port == nullptr ? nullptr : port->end,
                    .count = call.count});
  peers_.push_back(call.peer);
  return true;
}

void RepeatedGroup::Remember(const GroupCalls& group, uint64_t changes) {
  next_ = end_ = size_ = 0;
  if (group.others || (!group.already_called.empty() && !group.held.empty())) return;
  const MessageCall& first =
      group.already_called.empty() ? group.held.front().message : group.already_called.front();
  comm_ = first.comm;
  stream_ = first.stream;
  communicator_ = first.communicator.get();
  calls_.clear();
  peers_.clear();
  if (!communicator_->blocks() || communicator_->needs_check()) return;
  for (const MessageCall& call : group.already_called) {
    if (!Add(call)) return;
  }
  for (const HeldCall& held : group.held) {
    if (!Add(held.message)) return;
  }
  changes_ = changes;
  number_ = communicator_->enqueued_work().Remember(stream_, peers_);
  if (number_ != 0) size_ = end_ = static_cast<uint32_t>(calls_.size());
}

}  // namespace nccltune::sendrecv
