// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/pending_nonblocking.h"

namespace nccltune::sendrecv {

void PendingNonblocking::AddCommunicator(std::shared_ptr<Communicator> made, nccl::Comm comm) {
  const std::scoped_lock lock(mutex_);
  new_communicators_[comm] = std::move(made);
  ++count_;
}

void PendingNonblocking::AddGroup(const std::shared_ptr<PendingGroup>& group) {
  if (group == nullptr) return;
  const std::scoped_lock lock(mutex_);
  for (nccl::Comm each : group->Comms()) {
    groups_[each] = group;
    ++count_;
  }
}

nccl::Result PendingNonblocking::Progress(nccl::Comm comm) {
  if (!Any()) return abi::kSuccess;
  const std::scoped_lock lock(mutex_);
  if (const auto found_new = new_communicators_.find(comm); found_new != new_communicators_.end()) {
    const nccl::Result state = StateOf(comm);
    if (state != abi::kSuccess) return state;
    begin_(found_new->second, comm);
    new_communicators_.erase(found_new);
    --count_;
  }
  const auto found = groups_.find(comm);
  if (found == groups_.end()) return abi::kSuccess;
  const std::shared_ptr<PendingGroup> group = found->second;
  nccl::Result result = abi::kSuccess;
  for (nccl::Comm each : group->Comms()) {
    if (result == abi::kSuccess) result = StateOf(each);
  }
  if (result == abi::kInProgress) return result;
  Forget(*group);
  if (result == abi::kSuccess) return group->Finish();
  group->Abandon("NCCL has failed");
  return result;
}

void PendingNonblocking::Forget(nccl::Comm comm) {
  if (!Any()) return;
  const std::scoped_lock lock(mutex_);
  count_ -= new_communicators_.erase(comm);
  const auto found = groups_.find(comm);
  if (found == groups_.end()) return;
  const std::shared_ptr<PendingGroup> group = found->second;
  Forget(*group);
  group->Abandon("a communicator of the same group has ended");
}

void PendingNonblocking::Forget(const PendingGroup& group) {
  for (nccl::Comm each : group.Comms()) count_ -= groups_.erase(each);
}

nccl::Result PendingNonblocking::StateOf(nccl::Comm comm) const {
  nccl::Result state = abi::kSuccess;
  const nccl::Result result = native_.CommGetAsyncError(comm, &state);
  return result == abi::kSuccess ? state : result;
}

}  // namespace nccltune::sendrecv
