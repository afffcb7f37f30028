// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/decision.h"

namespace nccltune::sendrecv {

bool MayWait(const Circumstances& circumstances, const Policy& policy) {
  return policy.loose || circumstances.group_receives || circumstances.bytes > policy.eager_limit;
}

Verdict FirstDecides(Role role, const Circumstances& circumstances, const Policy& policy) {
  if (!circumstances.possible) return Verdict::kNative;
  if (policy.fifo) return Verdict::kFifo;
  if (role == Role::kReceiver) return Verdict::kPush;
  if (MayWait(circumstances, policy)) return Verdict::kPull;
  return circumstances.staging ? Verdict::kFetch : Verdict::kNative;
}

Sending HowToSend(bool ready, const Circumstances& circumstances, const Policy& policy) {
  return ready || MayWait(circumstances, policy) ? Sending::kDirect : Sending::kStaged;
}

}  // namespace nccltune::sendrecv
