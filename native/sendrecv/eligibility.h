// SPDX-License-Identifier: Apache-2.0
//
// Decides which messages a copy engine may carry. No other code decides this. All other messages go
// to NCCL when the application calls. decision.h lists the later decisions.
#ifndef NCCLTUNE_SENDRECV_ELIGIBILITY_H_
#define NCCLTUNE_SENDRECV_ELIGIBILITY_H_

#include <cstdint>

#include "sendrecv/calls.h"
#include "sendrecv/enqueue_call.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

enum class Eligibility : uint8_t {
  kUntracked,  // NCCL carries it; the library does not count it on either rank
  kNative,     // NCCL carries it; both ranks count it
  // Both ranks give the message a slot at the end of their groups, and the first of them decides.
  // The result may still be NCCL.
  kEligible,
};

// Returns the eligibility of a message whose communicator has been looked up. Both ranks of a pair
// get the same result, except for differences in memory, captures and errors. The slots settle
// those.
Eligibility EligibilityOf(const MessageCall& call);

// Returns whether NCCL would accept a call on this communicator now. If not, the call must fail at
// once.
bool IsReady(nccl::Comm comm, const Native& native);

// Returns whether NCCL is certain to refuse the call, and its whole group with it. `ranks`: size of
// the communicator; 0: not known.
bool IsRefused(const MessageCall& call, int ranks, const Native& native);
bool IsRefused(const EnqueueCall& call, int ranks, const Native& native);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ELIGIBILITY_H_
