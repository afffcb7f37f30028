// SPDX-License-Identifier: Apache-2.0
//
// Decides how a message is carried. The side that posts a message first decides; the other side
// follows. These functions call neither CUDA nor NCCL. The table of decisions is in
// docs/design/sendrecv.md ("Push, pull, native, staged").
//
// These functions decide about a message, in this order:
//   EligibilityOf (eligibility.h)      may a copy engine carry it at all? If not, NCCL carries it
//   LocalRoute (message_routes.h)      can the peer reach this rank's memory? Sets `can_copy`
//   LaneEnd::PassGate (message_lane.h) does it get a slot? If not, NCCL carries it on both sides
//   DecideFirst                        push, pull, fetch, buffer or NCCL; on the first side
//   ChooseSendMethod                   is a push direct or from staging memory?
//   LaneEnd::Capture, AcceptCapture    is a captured message copied when the graphs run?
//   MakePlan (plan.h)                  the streams and the order of the copies
#ifndef NCCLTUNE_SENDRECV_DECISION_H_
#define NCCLTUNE_SENDRECV_DECISION_H_

#include <cstdint>

#include "sendrecv/message_lane.h"

namespace nccltune::sendrecv {

// What the decision about a message depends on.
struct MessageConditions {
  uint64_t bytes = 0;
  // The peer can reach the memory and no capture is active. Only the first side knows this.
  bool can_copy = false;
  // The group also receives. Such a group may complete only after its peers have done their part.
  bool group_receives = false;
  // The peer has mapped the sender's staging memory.
  bool staging = false;
};

struct Policy {
  // Sends up to this size complete before their receives are posted, as they do in NCCL's buffers.
  uint64_t eager_limit = uint64_t{64} << 20;
  // Sends of any size may wait for their receives.
  bool sends_may_wait = false;
  // All messages go through buffers of the receivers. See vccl/vccl.h.
  bool vccl = false;
  // Messages that both sides capture are copied whenever the graphs run.
  bool graphs = false;
  // Most bytes of one copy; 0: no limit. The pieces of a message alternate between two streams, so
  // that other copies can run between them.
  uint64_t piece = 0;
};

// Returns whether a send like this may wait for its receive under NCCL as well.
bool MayWait(const MessageConditions& conditions, const Policy& policy);

MessageDecision DecideFirst(Role role, const MessageConditions& conditions, const Policy& policy);

// Returns how the sender, as the second side, carries out a push. `ready`: the receiver's stream
// has reached the receive, so a direct copy does not wait.
enum class SendMethod : uint8_t { kDirect, kStaged };
SendMethod ChooseSendMethod(bool ready, const MessageConditions& conditions, const Policy& policy);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_DECISION_H_
