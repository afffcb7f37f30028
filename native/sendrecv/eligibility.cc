// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/eligibility.h"

#include <cstdint>
#include <mutex>

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

}  // namespace

Eligibility EligibilityOf(const MessageCall& call) {
  if (!IsTracked(call)) return Eligibility::kUntracked;
  Communicator& communicator = *call.communicator;
  const std::scoped_lock lock(communicator.mutex());
  // For peers on other hosts or with other settings FloorOf returns UINT64_MAX.
  if (call.bytes() < communicator.FloorOf(call.peer)) return Eligibility::kNative;
  if (communicator.options().dry_run) return Eligibility::kNative;
  const Port* const port = communicator.FindPort(call.peer, call.role, false);
  return port != nullptr && port->end->closed() ? Eligibility::kNative : Eligibility::kEligible;
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

}  // namespace nccltune::sendrecv
