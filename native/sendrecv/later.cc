// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/later.h"

namespace nccltune::sendrecv {

void Later::Expect(std::shared_ptr<Communicator> made, nccl::Comm comm) {
  const std::scoped_lock lock(mutex_);
  coming_[comm] = std::move(made);
  ++count_;
}

void Later::Keep(const std::shared_ptr<Rest>& rest) {
  if (rest == nullptr) return;
  const std::scoped_lock lock(mutex_);
  for (nccl::Comm each : rest->Comms()) {
    rests_[each] = rest;
    ++count_;
  }
}

nccl::Result Later::Progress(nccl::Comm comm) {
  if (!Any()) return abi::kSuccess;
  const std::scoped_lock lock(mutex_);
  if (const auto coming = coming_.find(comm); coming != coming_.end()) {
    const nccl::Result state = StateOf(comm);
    if (state != abi::kSuccess) return state;
    begin_(coming->second, comm);
    coming_.erase(coming);
    --count_;
  }
  const auto found = rests_.find(comm);
  if (found == rests_.end()) return abi::kSuccess;
  const std::shared_ptr<Rest> rest = found->second;
  nccl::Result result = abi::kSuccess;
  for (nccl::Comm each : rest->Comms()) {
    if (result == abi::kSuccess) result = StateOf(each);
  }
  if (result == abi::kInProgress) return result;
  Forget(*rest);
  if (result == abi::kSuccess) return rest->Finish();
  rest->GiveUp("NCCL has failed");
  return result;
}

void Later::Forget(nccl::Comm comm) {
  if (!Any()) return;
  const std::scoped_lock lock(mutex_);
  count_ -= coming_.erase(comm);
  const auto found = rests_.find(comm);
  if (found == rests_.end()) return;
  const std::shared_ptr<Rest> rest = found->second;
  Forget(*rest);
  rest->GiveUp("a communicator of the same group has ended");
}

void Later::Forget(const Rest& rest) {
  for (nccl::Comm each : rest.Comms()) count_ -= rests_.erase(each);
}

nccl::Result Later::StateOf(nccl::Comm comm) const {
  nccl::Result state = abi::kSuccess;
  const nccl::Result result = native_.CommGetAsyncError(comm, &state);
  return result == abi::kSuccess ? state : result;
}

}  // namespace nccltune::sendrecv
