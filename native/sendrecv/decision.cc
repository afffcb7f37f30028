// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/decision.h"

namespace nccltune::sendrecv {

bool MayWait(const MessageConditions& conditions, const Policy& policy) {
  return policy.sends_may_wait || conditions.group_receives ||
         conditions.bytes > policy.eager_limit;
}

MessageDecision DecideFirst(Role role, const MessageConditions& conditions, const Policy& policy) {
  if (!conditions.can_copy) return MessageDecision::kNative;
  if (policy.kernel_waits) {
    const bool pulls = role == Role::kSender && MayWait(conditions, policy) && !policy.vccl;
    return pulls ? MessageDecision::kPull : MessageDecision::kNative;
  }
  // Without pushes only a receiver copies, and only what its sender has posted first.
  if (!conditions.may_push && (policy.vccl || role == Role::kReceiver)) {
    return MessageDecision::kNative;
  }
  if (policy.vccl) return MessageDecision::kBuffered;
  if (role == Role::kReceiver) return MessageDecision::kPush;
  if (MayWait(conditions, policy)) return MessageDecision::kPull;
  return conditions.staging ? MessageDecision::kFetch : MessageDecision::kNative;
}

SendMethod ChooseSendMethod(bool ready, const MessageConditions& conditions, const Policy& policy) {
  return ready || MayWait(conditions, policy) ? SendMethod::kDirect : SendMethod::kStaged;
}

}  // namespace nccltune::sendrecv
