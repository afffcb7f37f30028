// SPDX-License-Identifier: Apache-2.0
// The calls of ncclSend and ncclRecv, and the calls of a group. What the decisions of route.h
// depend on, from a message's call, its communicator and its memory. What NCCL would refuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sendrecv/group/communicator.h"
#include "sendrecv/group/group.h"
#include "sendrecv/hooks/enqueue_call.h"
#include "sendrecv/hooks/interpose.h"
#include "sendrecv/route.h"

namespace nccltune::sendrecv {

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

// The three functions below collect the facts for the decisions in route.h.
//
// `call.communicator` is null if the library does not handle the communicator.
Eligibility EligibilityOfCall(const MessageCall& call);

// Sets the exported address in `message`. `first`: see LocalFacts. The caller holds the
// communicator's mutex.
Route LocalRouteOfCall(const MessageCall& call, bool first, GroupMessage* message);

Route RouteToCount(const MessageOutcome& taken, Route local, const GroupMessage& message);

// Returns whether NCCL would accept a call on this communicator now. If not, pass the call to NCCL
// at once, so that the application gets NCCL's error from the same call.
bool IsReady(nccl::Comm comm, const Native& native);

// Returns whether NCCL is certain to refuse the call, and its whole group with it. `ranks` is the
// size of the communicator, or 0 if it is not known.
bool IsRefused(const MessageCall& call, int ranks, const Native& native);
bool IsRefused(const EnqueueCall& call, int ranks, const Native& native);

}  // namespace nccltune::sendrecv
