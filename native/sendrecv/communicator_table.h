// SPDX-License-Identifier: Apache-2.0
//
// The communicators of the process, by NCCL's handle.
#ifndef NCCLTUNE_SENDRECV_COMMUNICATOR_TABLE_H_
#define NCCLTUNE_SENDRECV_COMMUNICATOR_TABLE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>

#include "sendrecv/communicator.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

class CommunicatorTable {
 public:
  explicit CommunicatorTable(const Native& native) : native_(native) {}

  struct Entry {
    std::shared_ptr<Communicator> communicator;
    int ranks = 0;  // 0: not known
  };

  // Adds a communicator that NCCL has created. Returns false if NCCL does not return its rank.
  bool Add(const std::shared_ptr<Communicator>& communicator, nccl::Comm comm);
  // Returns an empty entry if the handle is not known. The result is valid until the thread's next
  // call.
  const Entry& Find(nccl::Comm comm);
  // Removes and returns a communicator; null: the handle is not known.
  std::shared_ptr<Communicator> Remove(nccl::Comm comm);
  // Counts how often communicators were added or removed.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  const Native& native_;
  std::atomic<uint64_t> changes_ = 1;
  std::shared_mutex mutex_;
  std::map<nccl::Comm, Entry> entries_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_COMMUNICATOR_TABLE_H_
