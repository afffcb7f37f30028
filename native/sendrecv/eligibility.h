// SPDX-License-Identifier: Apache-2.0
//
// Decides, when the application calls, whether a copy engine may carry a message at all. NCCL
// carries all other messages. The next decision is LocalRoute (message_routes.h) at the end of the
// group. LocalRoute compares the size with this rank's own threshold and tests the memory.
// decision.h lists all decisions.
#ifndef NCCLTUNE_SENDRECV_ELIGIBILITY_H_
#define NCCLTUNE_SENDRECV_ELIGIBILITY_H_

#include <cstdint>

#include "sendrecv/calls.h"
#include "sendrecv/enqueue_call.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

enum class Eligibility : uint8_t {
  kUntracked,  // NCCL carries the message, and neither rank counts it
  kNative,     // NCCL carries the message, and both ranks count it
  // A copy engine may carry the message. The two ranks decide at the end of their groups. They may
  // still leave the message to NCCL.
  kEligible,
};

// Returns the eligibility of a message. `call.communicator` is null if the library does not handle
// the communicator. Sender and receiver get the same result, except after a capture or an error on
// one rank. In that case the memory that they share (message_lane.h) makes them agree.
Eligibility EligibilityOf(const MessageCall& call);

// Returns whether NCCL would accept a call on this communicator now. If not, pass the call to NCCL
// at once, so that the application gets NCCL's error from the same call.
bool IsReady(nccl::Comm comm, const Native& native);

// Returns whether NCCL is certain to refuse the call, and its whole group with it. `ranks` is the
// size of the communicator, or 0 if it is not known.
bool IsRefused(const MessageCall& call, int ranks, const Native& native);
bool IsRefused(const EnqueueCall& call, int ranks, const Native& native);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ELIGIBILITY_H_
