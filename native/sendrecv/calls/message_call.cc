// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/calls/message_call.h"

#include <mutex>

#include "sendrecv/live_control.h"

namespace nccltune::sendrecv {
namespace {

// NCCL has 10 data types, and 12 since 2.24. For versions later than 2.32, only a negative type
// counts as unknown.
constexpr int kFloat8Version = 22400;
constexpr int kLastKnownVersion = 23299;

bool IsUnknownType(int type, int version) {
  if (type < 0) return true;
  if (version > kLastKnownVersion) return false;
  return type >= (version >= kFloat8Version ? 12 : 10);
}

bool IsUnknownRank(int rank, int ranks) { return rank < 0 || (ranks > 0 && rank >= ranks); }

// Returns whether the library counts the message. It does not count empty messages, messages of a
// rank to itself, and calls with invalid arguments, which NCCL refuses.
bool IsTracked(const MessageCall& call) {
  const size_t element = nccl::SizeOf(call.type);
  return call.communicator != nullptr && call.peer != call.communicator->rank() && call.peer >= 0 &&
         element != 0 && call.count != 0 && call.count <= SIZE_MAX / element &&
         call.buffer != nullptr;
}

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

Eligibility EligibilityOfCall(const MessageCall& call) {
  if (!IsTracked(call)) return Eligibility::kUntracked;
  Communicator& communicator = *call.communicator;
  const std::scoped_lock lock(communicator.mutex());
  // For peers on other hosts or with other settings the floor is UINT64_MAX, and there is no lane.
  CallFacts facts = {.tracked = true,
                     .bytes = call.bytes(),
                     .floor = communicator.FloorOf(call.peer),
                     .dry_run = communicator.options().dry_run};
  if (facts.bytes >= facts.floor) {
    const Port* const port = communicator.FindPort(call.peer, call.role, false);
    facts.lane_closed = port != nullptr && port->end->closed();
  }
  return EligibilityOf(facts);
}

Route LocalRouteOfCall(const MessageCall& call, bool first, GroupMessage* message) {
  Communicator& communicator = *call.communicator;
  const LocalFacts facts = {.bytes = message->bytes,
                            .from = communicator.options().from,
                            .captured = message->captured,
                            .graphs = communicator.options().policy.graphs,
                            .switched_off = IsSwitchedOff(),
                            .first = first};
  return LocalRoute(facts, [&] {
    if (!communicator.driver().Owns(call.stream)) return Route::kForeign;
    const ExportLookup found =
        communicator.FindMemory(call.peer, call.role, message->address, message->bytes);
    message->allocation = found.number;
    message->offset = found.offset;
    return RouteOf(found.status);
  });
}

Route RouteToCount(const MessageOutcome& taken, Route local, const GroupMessage& message) {
  const LaneEnd& end = *message.port->end;
  return RouteTaken(
      taken, local,
      {.small = message.small, .unusable = end.is_unusable(), .gave_way = end.gave_way()});
}

bool IsReady(nccl::Comm comm, const Native& native) {
  nccl::Result state = abi::kSuccess;
  return native.CommGetAsyncError(comm, &state) == abi::kSuccess && state == abi::kSuccess;
}

bool IsRefused(const MessageCall& call, int ranks, const Native& native) {
  return call.comm == nullptr || IsUnknownRank(call.peer, ranks) ||
         IsUnknownType(call.type, native.version);
}

bool IsRefused(const EnqueueCall& call, int ranks, const Native& native) {
  return call.comm == nullptr || (call.rank && IsUnknownRank(*call.rank, ranks)) ||
         (call.type && IsUnknownType(*call.type, native.version)) || (call.op && *call.op < 0);
}

void CallNested(const std::vector<HeldCall>& held) {
  for (const HeldCall& each : held) {
    if (each.nests) (*each.other)();
  }
}

nccl::Result CallNative(const MessageCall& call, const Native& native) {
  return call.role == Role::kSender
             ? native.Send(call.buffer, call.count, call.type, call.peer, call.comm, call.stream)
             : native.Recv(call.buffer, call.count, call.type, call.peer, call.comm, call.stream);
}

}  // namespace nccltune::sendrecv
