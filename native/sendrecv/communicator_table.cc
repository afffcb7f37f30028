// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/communicator_table.h"

#include <mutex>
#include <utility>

namespace nccltune::sendrecv {

bool CommunicatorTable::Add(const std::shared_ptr<Communicator>& communicator, nccl::Comm comm) {
  int rank = -1;
  int ranks = 0;
  if (native_.CommUserRank(comm, &rank) != abi::kSuccess) return false;
  if (native_.CommCount(comm, &ranks) != abi::kSuccess) ranks = 0;
  communicator->Begin(rank);
  const std::unique_lock lock(mutex_);
  entries_[comm] = {.communicator = communicator, .ranks = ranks};
  ++changes_;
  return true;
}

const CommunicatorTable::Entry& CommunicatorTable::Find(nccl::Comm comm) {
  // A thread usually looks up the same communicator again, so keep its last result.
  struct LastFound {
    nccl::Comm comm = nullptr;
    uint64_t changes = 0;
    Entry entry;
  };
  thread_local LastFound last;
  if (last.comm == comm && last.changes == changes()) return last.entry;
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(comm);
  last = {.comm = comm,
          .changes = changes(),
          .entry = found == entries_.end() ? Entry{} : found->second};
  return last.entry;
}

std::shared_ptr<Communicator> CommunicatorTable::Remove(nccl::Comm comm) {
  const std::unique_lock lock(mutex_);
  const auto found = entries_.find(comm);
  if (found == entries_.end()) return nullptr;
  std::shared_ptr<Communicator> taken = std::move(found->second.communicator);
  entries_.erase(found);
  ++changes_;
  return taken;
}

}  // namespace nccltune::sendrecv
