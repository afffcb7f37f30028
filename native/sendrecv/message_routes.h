// SPDX-License-Identifier: Apache-2.0
//
// Decides at the end of a group whether this rank allows a copy engine for an eligible message, and
// determines which route a message took. calls.cc sets `can_copy` from the decision. The next
// decision is LaneEnd::PassGate (message_lane.h).
#ifndef NCCLTUNE_SENDRECV_MESSAGE_ROUTES_H_
#define NCCLTUNE_SENDRECV_MESSAGE_ROUTES_H_

#include <string>

#include "sendrecv/calls.h"
#include "sendrecv/counts.h"
#include "sendrecv/group.h"

namespace nccltune::sendrecv {

// Returns Route::kPushed if this rank allows a copy engine, or the reason why NCCL must carry the
// message. Tests the size against this rank's own threshold, because EligibilityOf has tested the
// size only against the lower threshold of the two ranks. Sets the exported address in `message`.
// `first` is true if NCCL connects the two ranks with this message. The caller holds the
// communicator's mutex.
Route LocalRoute(const MessageCall& call, bool first, GroupMessage* message);

// Returns the route of messages of a closed lane that is usable.
Route RouteOfClosed(const LaneEnd& end);

// Returns the route of a message that has been carried. `local` is the result of LocalRoute.
Route RouteTaken(const MessageOutcome& taken, Route local, const GroupMessage& message);

// Returns a text such as "2 sends, 2 receives, 134217728 bytes".
std::string DescribeGroup(const GroupCalls& group);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_MESSAGE_ROUTES_H_
