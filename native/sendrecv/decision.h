// SPDX-License-Identifier: Apache-2.0
//
// What the first of two decides of a message, and how the second follows. Pure; the table is in
// docs/design/sendrecv.md.
#ifndef NCCLTUNE_SENDRECV_DECISION_H_
#define NCCLTUNE_SENDRECV_DECISION_H_

#include <cstdint>

#include "sendrecv/lane.h"

namespace nccltune::sendrecv {

// Of the message and of the group that it is in.
struct Circumstances {
  uint64_t bytes = 0;
  // Large enough to be worth it, memory that the peer can reach, no capture. For the first alone.
  bool possible = false;
  // The group receives as well, so that it is over only when its peers have done their part.
  bool group_receives = false;
  // The peer reaches the sender's staging memory, too.
  bool staging = false;
};

struct Policy {
  // Messages up to it may be sent before anybody receives, as NCCL's buffers allow.
  uint64_t eager_limit = uint64_t{64} << 20;
  // Sends may wait for their receives whatever their size.
  bool loose = false;
  // All goes through buffers of the receivers.
  bool fifo = false;
  // Messages that both sides capture are copied, too, as often as their graphs run.
  bool graphs = false;
  // Bytes that a copy engine gets at once otherwise, in two streams in turn so that other copies
  // come between; 0: all.
  uint64_t piece = 0;
};

// A send that waits for its receive is nothing that the application would not have with NCCL.
bool MayWait(const Circumstances& circumstances, const Policy& policy);

Verdict FirstDecides(Role role, const Circumstances& circumstances, const Policy& policy);

// Of a sender that comes second to a push. `ready`: the receiver's stream is there, so that nothing
// is waited for.
enum class Sending : uint8_t { kDirect, kStaged };
Sending HowToSend(bool ready, const Circumstances& circumstances, const Policy& policy);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_DECISION_H_
