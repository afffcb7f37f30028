// SPDX-License-Identifier: Apache-2.0
//
// Finds out whether this rank's part of a message can go by copy engine, and which route the
// message took.
#ifndef NCCLTUNE_SENDRECV_MESSAGE_ROUTES_H_
#define NCCLTUNE_SENDRECV_MESSAGE_ROUTES_H_

#include <string>

#include "sendrecv/calls.h"
#include "sendrecv/counts.h"
#include "sendrecv/group.h"

namespace nccltune::sendrecv {

// Returns Route::kPushed if a copy engine may carry the message, or the reason why NCCL must. Sets
// the exported address in `message`. `first`: NCCL connects the two ranks with this message. The
// caller holds the communicator's mutex.
Route LocalRoute(const MessageCall& call, bool first, GroupMessage* message);

// Returns the route of a message that has been carried. `local`: the result of LocalRoute.
Route RouteTaken(const MessageOutcome& taken, Route local, const GroupMessage& message);

// Returns a text such as "2 sends, 2 receives, 134217728 bytes".
std::string DescribeGroup(const GroupCalls& group);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_MESSAGE_ROUTES_H_
