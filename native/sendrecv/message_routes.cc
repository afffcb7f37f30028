// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/message_routes.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sendrecv/communicator.h"
#include "sendrecv/live_control.h"

namespace nccltune::sendrecv {
namespace {

Route RouteOf(ExportStatus status) {
  switch (status) {
    case ExportStatus::kMapped:
      return Route::kPushed;
    case ExportStatus::kPending:
      return Route::kNotYet;
    case ExportStatus::kRefused:
      return Route::kRefused;
    case ExportStatus::kUnshareable:
      return Route::kUnshared;
    case ExportStatus::kTableFull:
      return Route::kNoRoom;
    case ExportStatus::kNoMemory:
      break;
  }
  return Route::kNoMemory;
}

}  // namespace

Route LocalRoute(const MessageCall& call, bool first, GroupMessage* message) {
  Communicator& communicator = *call.communicator;
  if (message->bytes < communicator.options().from) return Route::kSmall;
  if (message->captured && !communicator.options().policy.graphs) return Route::kCaptured;
  if (IsSwitchedOff()) return Route::kOff;
  if (!communicator.driver().Owns(call.stream)) return Route::kForeign;
  const ExportLookup found =
      communicator.FindMemory(call.peer, call.role, message->address, message->bytes);
  message->allocation = found.number;
  message->offset = found.offset;
  const Route route = RouteOf(found.status);
  return route == Route::kPushed && first ? Route::kFirst : route;
}

Route RouteOfClosed(const LaneEnd& end) {
  return end.gave_way() ? Route::kGaveWay : Route::kCaptured;
}

Route RouteTaken(const MessageOutcome& taken, Route local, const GroupMessage& message) {
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
  if (message.small) return Route::kSmall;
  if (taken.reason == NativeReason::kClosed) {
    const LaneEnd& end = *message.port->end;
    return end.is_unusable() ? Route::kElsewhere : RouteOfClosed(end);
  }
  if (taken.reason == NativeReason::kEnded) return Route::kEnded;
  if (local != Route::kPushed) return local;
  if (taken.reason == NativeReason::kEarly) return Route::kEarly;
  if (taken.reason == NativeReason::kFresh) return Route::kFirst;
  if (taken.reason == NativeReason::kRingFull) return Route::kFull;
  return taken.first ? Route::kEager : Route::kPeer;
}

std::string DescribeGroup(const GroupCalls& group) {
  size_t sends = 0;
  size_t receives = 0;
  uint64_t bytes = 0;
  const auto add = [&](const MessageCall& call) {
    ++(call.role == Role::kSender ? sends : receives);
    bytes += call.bytes();
  };
  for (const MessageCall& call : group.already_called) add(call);
  for (const HeldCall& held : group.held) {
    if (held.other == nullptr) add(held.message);
  }
  const auto several = [](size_t count, std::string_view what) {
    return std::to_string(count) + std::string(what) + (count == 1 ? ", " : "s, ");
  };
  std::string words = sends == 0 ? "" : several(sends, " send");
  if (receives != 0) words += several(receives, " receive");
  return words + std::to_string(bytes) + " bytes";
}

}  // namespace nccltune::sendrecv
