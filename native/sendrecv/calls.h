// SPDX-License-Identifier: Apache-2.0
//
// Carries out the calls between ncclGroupStart and ncclGroupEnd at the end of the group. A single
// call outside of a group is a group of one.
#ifndef NCCLTUNE_SENDRECV_CALLS_H_
#define NCCLTUNE_SENDRECV_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sendrecv/communicator.h"
#include "sendrecv/enqueue_call.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

class RepeatedGroup;

// A call of ncclSend or ncclRecv.
struct MessageCall {
  Role role = Role::kSender;
  void* buffer = nullptr;
  size_t count = 0;
  nccl::DataType type = nccl::kInt8;
  int peer = 0;
  nccl::Comm comm = nullptr;
  nccl::Stream stream = nullptr;
  // Null if NCCL carries the message and the library does not count it.
  std::shared_ptr<Communicator> communicator;
  bool eligible = false;  // a copy engine may carry the message: see route.h

  uint64_t bytes() const { return count * nccl::SizeOf(type); }
};

// A call that the library passes to NCCL only at the end of the group. The call is `other` if
// `other` is not null, else `message`.
struct HeldCall {
  MessageCall message;
  std::unique_ptr<EnqueueCall> other;
  bool nests = false;  // `other` starts or ends a nested group
};

struct GroupCalls {
  // Messages with a `communicator` that were passed to NCCL when the application called. The
  // application called all of them before the calls in `held`.
  std::vector<MessageCall> already_called;
  std::vector<HeldCall> held;
  bool others = false;  // other calls of this group were passed to NCCL at once
  // The streams of collectives and one-sided operations of this group.
  struct OtherWork {
    nccl::Comm comm = nullptr;
    nccl::Stream stream = nullptr;
  };
  std::vector<OtherWork> other_work;
  // Ends NCCL's group. Empty if `held` is a single call outside of a group.
  std::function<nccl::Result()> end;
};

// Makes the held calls that start or end nested groups, and no others. Afterwards NCCL is in the
// outermost group.
void CallNested(const std::vector<HeldCall>& held);

nccl::Result CallNative(const MessageCall& call, const Native& native);

// A group on nonblocking communicators whose NCCL calls are still in progress. When NCCL's calls
// are complete, the library enqueues its remaining operations.
class PendingGroup {
 public:
  virtual ~PendingGroup() = default;
  // Returns all communicators of the group. NCCL's calls are complete when they are complete on
  // every one of them.
  virtual std::vector<nccl::Comm> Comms() const = 0;
  // Enqueues the remaining operations. Called once, when NCCL's calls are complete.
  virtual nccl::Result Finish() = 0;
  // Marks the communicators as failed. Called instead of Finish if NCCL's calls fail or a
  // communicator of the group ends.
  virtual void Abandon(const std::string& why) = 0;
};

struct GroupResult {
  // NCCL's result, or an error of the library's own operations.
  nccl::Result result = abi::kSuccess;
  nccl::Result native = abi::kSuccess;  // result of GroupCalls::end
  // Set if NCCL's calls are still in progress, because a communicator is nonblocking.
  std::shared_ptr<PendingGroup> rest;
};

// Carries out a group with at least one message whose `communicator` is set. If an earlier call of
// the group has failed with `error`, NCCL's group ends without the held messages, the communicators
// of the group are marked as failed, and `error` is the result. `repeated` remembers the group if
// NCCL carries all of its messages. `changes` is CommunicatorTable::changes().
GroupResult RunCalls(GroupCalls group, const Native& native, uint64_t changes, nccl::Result error,
                     RepeatedGroup* repeated);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_CALLS_H_
