// SPDX-License-Identifier: Apache-2.0
//
// The calls of a group in their order, and how they are carried out at the end of the group.
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

struct MessageCall {
  Role role = Role::kSender;
  void* buffer = nullptr;
  size_t count = 0;
  nccl::DataType type = nccl::kInt8;
  int peer = 0;
  nccl::Comm comm = nullptr;
  nccl::Stream stream = nullptr;
  // Null: NCCL carries the message, and it is not counted.
  std::shared_ptr<Communicator> communicator;
  bool eligible = false;  // a copy engine may carry it: see eligibility.h

  uint64_t bytes() const { return count * nccl::SizeOf(type); }
};

// A call that is made at the end of its group: `other` if that is not null, else `message`.
struct HeldCall {
  MessageCall message;
  std::unique_ptr<EnqueueCall> other;
  bool nests = false;  // `other` starts or ends a nested group
};

struct GroupCalls {
  // Counted messages that NCCL got at the call. All of them come before `held`.
  std::vector<MessageCall> already_called;
  std::vector<HeldCall> held;
  bool others = false;  // NCCL got other work of this group at the call
  // The streams of collectives and one-sided operations of this group.
  struct OtherWork {
    nccl::Comm comm = nullptr;
    nccl::Stream stream = nullptr;
  };
  std::vector<OtherWork> other_work;
  // Ends NCCL's group. Empty: `held` is a single call outside of a group.
  std::function<nccl::Result()> end;
};

// Makes only the held calls that start or end nested groups, so that NCCL is back in the outermost
// group.
void CallNested(const std::vector<HeldCall>& held);

nccl::Result CallNative(const MessageCall& call, const Native& native);

// A group whose NCCL part is still in progress. The library's part follows when that is complete.
class PendingGroup {
 public:
  virtual ~PendingGroup() = default;
  // Returns all communicators of the group. NCCL's part is complete when it is complete on each.
  virtual std::vector<nccl::Comm> Comms() const = 0;
  // Called once, when NCCL's part is complete.
  virtual nccl::Result Finish() = 0;
  // Called instead of Finish if NCCL's part fails.
  virtual void Abandon(const std::string& why) = 0;
};

struct GroupResult {
  // NCCL's result, or the error of the library's part.
  nccl::Result result = abi::kSuccess;
  nccl::Result native = abi::kSuccess;  // result of `end`
  // Not null: NCCL's part is in progress, because a communicator is nonblocking.
  std::shared_ptr<PendingGroup> rest;
};

// Carries out a group with at least one counted message. `error`: the error of an earlier call of
// the group; then NCCL's group ends without the held calls. `repeated` remembers a group that NCCL
// carries alone. `changes`: CommunicatorTable::changes().
GroupResult RunCalls(GroupCalls group, const Native& native, uint64_t changes, nccl::Result error,
                     RepeatedGroup* repeated);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_CALLS_H_
