// SPDX-License-Identifier: Apache-2.0
// Carries out the calls between ncclGroupStart and ncclGroupEnd at the end of the group. A single
// call outside of a group is a group of one.
#pragma once

#include <functional>
#include <memory>

#include "sendrecv/calls/message_call.h"
#include "sendrecv/hooks/interpose.h"

namespace nccltune::sendrecv {

struct GroupResult {
  // NCCL's result, or an error of the library's own operations.
  nccl::Result result = abi::kSuccess;
  nccl::Result native = abi::kSuccess;  // result of GroupCalls::end
  // Set if NCCL's calls are still in progress, because a communicator is nonblocking.
  std::shared_ptr<PendingGroup> rest;
};

// Carries out a group with at least one message whose `communicator` is set. If an earlier call of
// the group has failed with `error`, NCCL's group ends without the held messages, the communicators
// of the group are marked as failed, and `error` is the result. `remember` is called if NCCL has
// carried all messages of the group, while the mutexes of its communicators are held.
using Remember = std::function<void(const GroupCalls& group)>;
GroupResult RunCalls(GroupCalls group, const Native& native, nccl::Result error,
                     const Remember& remember);

}  // namespace nccltune::sendrecv
