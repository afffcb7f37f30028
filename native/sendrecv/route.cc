// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/route.h"

namespace nccltune::sendrecv {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Route::kCount)> kDescriptions = {
    "copy engine, pushed",
    "copy engine, pulled",
    "copy engine, staged",
    "copy engine, through the receiver's buffer",
    "NCCL: small",
    "NCCL: peer on another host, or unable to use copy engines",
    "NCCL: first message from one rank to another",
    "NCCL: no free slot between the two ranks",
    "NCCL: sent before it was received",
    "NCCL: received before it was sent, with one connection or without NVLink",
    "NCCL: after a message that held up others, with one connection",
    "NCCL: decided by the peer",
    "NCCL: captured in a graph, or after a captured message",
    "NCCL: the peer has ended the communicator",
    "NCCL: memory cannot be shared",
    "NCCL: not GPU memory, or in several allocations",
    "NCCL: memory not mapped by the peer yet",
    "NCCL: memory that the peer cannot map",
    "NCCL: too many allocations exported",
    "NCCL: stream of another CUDA context",
    "NCCL: switched off",
    "NCCL: dry run, a copy engine would have carried it",
    "contents checked",
};

}  // namespace

std::string_view DescribeRoute(Route route) { return kDescriptions[static_cast<size_t>(route)]; }

Counts::Total Counts::Get(Route route) const {
  const Counter& counter = counters_[static_cast<size_t>(route)];
  return {.messages = counter.messages.load(std::memory_order_relaxed),
          .bytes = counter.bytes.load(std::memory_order_relaxed)};
}

std::string Counts::Report(std::string_view separator) const {
  std::string text;
  for (size_t i = 0; i < counters_.size(); ++i) {
    const Total total = Get(static_cast<Route>(i));
    if (total.messages == 0) continue;
    text += std::string(kDescriptions[i]) + ": " + std::to_string(total.messages) + " messages, " +
            std::to_string(total.bytes) + " bytes";
    text += separator;
  }
  return text;
}

Eligibility EligibilityOf(const CallFacts& facts) {
  if (!facts.tracked) return Eligibility::kUntracked;
  const bool native = facts.bytes < facts.floor || facts.dry_run || facts.lane_closed;
  return native ? Eligibility::kNative : Eligibility::kEligible;
}

Route LocalRoute(const LocalFacts& facts, const std::function<Route()>& of_memory) {
  if (facts.bytes < facts.from) return Route::kSmall;
  if (facts.captured && !facts.graphs) return Route::kCaptured;
  if (facts.switched_off) return Route::kOff;
  const Route route = of_memory();
  return route == Route::kPushed && facts.first ? Route::kFirst : route;
}

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

Route RouteTaken(const MessageOutcome& taken, Route local, const LaneFacts& lane) {
  switch (taken.path) {
    case Path::kPushed:
      return Route::kPushed;
    case Path::kPulled:
      return Route::kPulled;
    case Path::kStaged:
      return Route::kStaged;
    case Path::kBuffered:
      return Route::kBuffered;
    case Path::kNative:
      break;
  }
  if (lane.small) return Route::kSmall;
  if (taken.reason == NativeReason::kClosed) {
    return lane.unusable ? Route::kElsewhere : RouteOfClosed(lane.gave_way);
  }
  if (taken.reason == NativeReason::kEnded) return Route::kEnded;
  if (local != Route::kPushed) return local;
  if (taken.reason == NativeReason::kEarly) return Route::kEarly;
  if (taken.reason == NativeReason::kFresh) return Route::kFirst;
  if (taken.reason == NativeReason::kRingFull) return Route::kFull;
  return taken.first ? Route::kEager : Route::kPeer;
}

}  // namespace nccltune::sendrecv
