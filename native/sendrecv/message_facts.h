// SPDX-License-Identifier: Apache-2.0
//
// Collects what the decisions of route.h depend on, from a message's call, its communicator and its
// memory. Also what NCCL would refuse.
#ifndef NCCLTUNE_SENDRECV_MESSAGE_FACTS_H_
#define NCCLTUNE_SENDRECV_MESSAGE_FACTS_H_

#include <string>

#include "sendrecv/calls.h"
#include "sendrecv/enqueue_call.h"
#include "sendrecv/group.h"
#include "sendrecv/interpose.h"
#include "sendrecv/route.h"

namespace nccltune::sendrecv {

// `call.communicator` is null if the library does not handle the communicator.
Eligibility EligibilityOf(const MessageCall& call);

// Sets the exported address in `message`. `first`: see LocalFacts. The caller holds the
// communicator's mutex.
Route LocalRoute(const MessageCall& call, bool first, GroupMessage* message);

Route RouteTaken(const MessageOutcome& taken, Route local, const GroupMessage& message);

// Returns whether NCCL would accept a call on this communicator now. If not, pass the call to NCCL
// at once, so that the application gets NCCL's error from the same call.
bool IsReady(nccl::Comm comm, const Native& native);

// Returns whether NCCL is certain to refuse the call, and its whole group with it. `ranks` is the
// size of the communicator, or 0 if it is not known.
bool IsRefused(const MessageCall& call, int ranks, const Native& native);
bool IsRefused(const EnqueueCall& call, int ranks, const Native& native);

// Returns a text such as "2 sends, 2 receives, 134217728 bytes".
std::string DescribeGroup(const GroupCalls& group);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_MESSAGE_FACTS_H_
