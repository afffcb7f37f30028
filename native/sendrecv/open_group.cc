// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/open_group.h"

#include <algorithm>

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

}  // namespace nccltune::sendrecv
