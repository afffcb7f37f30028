// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/calls/open_group.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "sendrecv/route.h"

namespace nccltune::sendrecv {
namespace {

bool IsError(nccl::Result result) { return result != abi::kSuccess && result != abi::kInProgress; }

}  // namespace

void OpenGroup::Make(ThreadState* thread) {
  struct Keeper {
    explicit Keeper(ThreadState* thread) : kept(*thread) {}
    ~Keeper() { delete static_cast<OpenGroup*>(std::exchange(kept.open_group, nullptr)); }
    ThreadState& kept;
  };
  thread->open_group = new OpenGroup;
  thread_local const Keeper keeper(thread);
}

void OpenGroup::AddAlreadyCalled(MessageCall call) {
  if (call.communicator == nullptr) {
    calls_.others = true;
  } else {
    calls_.already_called.push_back(std::move(call));
  }
}

nccl::Result OpenGroup::AddOther(nccl::Result result) {
  calls_.others = true;
  failed_ = failed_ || IsError(result);
  return result;
}

nccl::Result OpenGroup::CallNow(MessageCall call, const Native& native) {
  const nccl::Result result = CallNative(call, native);
  if (IsError(result)) {
    failed_ = true;
  } else {
    AddAlreadyCalled(std::move(call));
  }
  return result;
}

nccl::Result OpenGroup::CallNow(const EnqueueCall& call) {
  calls_.other_work.push_back({.comm = call.comm, .stream = call.stream});
  return AddOther(call());
}

void OpenGroup::Hold(MessageCall call) {
  calls_.held.push_back({.message = std::move(call), .other = nullptr, .nests = false});
}

void OpenGroup::Hold(std::unique_ptr<EnqueueCall> call) {
  calls_.other_work.push_back({.comm = call->comm, .stream = call->stream});
  calls_.held.push_back({.message = {}, .other = std::move(call), .nests = false});
}

void OpenGroup::HoldNested(std::unique_ptr<EnqueueCall> call) {
  calls_.held.push_back({.message = {}, .other = std::move(call), .nests = true});
}

bool OpenGroup::HoldsUseOf(nccl::RedOp op, nccl::Comm comm) const {
  return std::ranges::any_of(calls_.held, [&](const HeldCall& held) {
    return held.other != nullptr && held.other->op == op && held.other->comm == comm;
  });
}

void OpenGroup::Flush(const Native& native) {
  for (HeldCall& held : std::exchange(calls_.held, {})) {
    if (held.nests) {
      (*held.other)();
    } else if (held.other != nullptr) {
      CallNow(*held.other);
    } else {
      CallNow(std::move(held.message), native);
    }
  }
}

bool OpenGroup::IgnoresSimulation() const {
  const auto does_not_block = [](const MessageCall& call) {
    return call.communicator != nullptr && !call.communicator->blocks();
  };
  return std::ranges::any_of(calls_.already_called, does_not_block) ||
         std::ranges::any_of(calls_.held, does_not_block, &HeldCall::message);
}

bool OpenGroup::Forget(const Communicator* communicator) {
  const auto uses = [&](const MessageCall& call) {
    return call.communicator.get() == communicator;
  };
  if (std::erase_if(calls_.already_called, uses) != 0) calls_.others = true;
  return std::ranges::any_of(calls_.held, uses, &HeldCall::message);
}

void OpenGroup::AddNew(NewCommunicator made) {
  calls_.others = true;
  made_.push_back(std::move(made));
}

OpenGroup::Contents OpenGroup::End() {
  repeated.Restart();
  depth_ = 0;
  doubtful_ = false;
  return {.calls = std::exchange(calls_, {}),
          .made = std::exchange(made_, {}),
          .failed = std::exchange(failed_, false),
          .error = std::exchange(error_, abi::kSuccess)};
}

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
