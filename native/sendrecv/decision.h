// SPDX-License-Identifier: Apache-2.0
//
// Decides how a message is carried. A message has two sides, its sender and its receiver. The side
// that posts the message first (LaneEnd::Post in message_lane.h) decides, and the other side
// follows. The functions in this file call neither CUDA nor NCCL. The table of decisions is in
// docs/design/sendrecv.md ("Push, pull, native, staged").
//
// These functions decide about a message, in this order:
//   EligibilityOf (eligibility.h)      may a copy engine carry it at all? If not, NCCL carries it
//   LocalRoute (message_routes.h)      is it large enough for this rank, and can the peer reach
//                                      this rank's memory?
//   GroupRun::MessageOf (calls.cc)     sets `can_copy` from the result of LocalRoute
//   LaneEnd::PassGate (message_lane.h) does it get a slot? If not, NCCL carries it on both sides
//   DecideFirst                        push, pull, fetch, buffer or NCCL; on the first side
//   ChooseSendMethod                   is a push direct or from staging memory?
//   MakePlan (plan.h)                  the streams and the order of the copies
// If a copy engine may carry a captured message, LaneEnd::Capture and AcceptCapture replace
// PassGate and DecideFirst. They decide whether the message is copied whenever the graphs run.
#ifndef NCCLTUNE_SENDRECV_DECISION_H_
#define NCCLTUNE_SENDRECV_DECISION_H_

#include <cstdint>

#include "sendrecv/message_lane.h"
#include "sendrecv/wait_kernels.h"

namespace nccltune::sendrecv {

// What the first side's decision about a message depends on.
struct MessageConditions {
  uint64_t bytes = 0;
  // The first side allows a copy engine: the size, captures and memory permit it. calls.cc sets
  // `can_copy` from the result of LocalRoute. The second side's value matters only for captured
  // messages.
  bool can_copy = false;
  // Copies into the peer's memory are allowed (direct_access.h).
  bool may_push = true;
  // The group also has receives. Under NCCL, too, such a group may wait for its peers.
  bool group_receives = false;
  // On the sender's side: the receiver has mapped this rank's staging memory (staging.h). Only
  // looked up if a copy engine may carry the message, but NCCL would carry it otherwise.
  bool staging = false;
};

struct Policy {
  // Sends of up to this many bytes complete before their receives are posted. NCCL's buffers have
  // the same effect for small sends.
  uint64_t eager_limit = uint64_t{64} << 20;
  // Sends of any size may wait for their receives.
  bool sends_may_wait = false;
  // Every message goes through a buffer of its receiver. See vccl/vccl.h.
  bool vccl = false;
  // A copy engine carries messages that both sides capture in CUDA graphs, whenever the graphs run.
  bool graphs = false;
  // Most bytes of one copy, or 0 for no limit. The pieces of a message alternate between two
  // streams, so that other copies can run between them.
  uint64_t piece = 0;
  // Streams wait by kernels, and the receiver copies each message that its sender has posted first.
  // NCCL carries all others. For streams that share one connection to the GPU.
  bool kernel_waits = false;
  WaitLimits wait_limits = {};
};

// Returns whether a send may wait for its receive: the policy allows every send to wait, the group
// also receives, or the message is larger than `eager_limit`. In the last two cases the send may
// wait under NCCL as well.
bool MayWait(const MessageConditions& conditions, const Policy& policy);

// Returns how the message is carried. `role` is that of the first side. For a push, the next
// decision is ChooseSendMethod on the sender, and then MakePlan (plan.h).
MessageDecision DecideFirst(Role role, const MessageConditions& conditions, const Policy& policy);

// Returns how the sender copies a message that the receiver has posted first. `ready` is true if
// the receiver's stream has reached the receive, so that a direct copy does not wait.
enum class SendMethod : uint8_t { kDirect, kStaged };
SendMethod ChooseSendMethod(bool ready, const MessageConditions& conditions, const Policy& policy);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_DECISION_H_
