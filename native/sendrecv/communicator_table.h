// SPDX-License-Identifier: Apache-2.0
//
// The communicators of the process that the library handles, by NCCL's handle (ncclComm_t).
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
    int ranks = 0;  // 0 if it is not known
  };

  // Adds a communicator that NCCL has created. Adds nothing and returns false if NCCL does not
  // return its rank.
  bool Add(const std::shared_ptr<Communicator>& communicator, nccl::Comm comm);
  // Returns the entry of a handle, or an empty entry if the handle is not known. The reference is
  // valid until this thread's next call of Find.
  const Entry& Find(nccl::Comm comm);
  // Removes and returns a communicator. Returns null if the handle is not known.
  std::shared_ptr<Communicator> Remove(nccl::Comm comm);
  // Returns a number that changes whenever a communicator is added or removed.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  const Native& native_;
  std::atomic<uint64_t> changes_ = 1;
  std::shared_mutex mutex_;
  std::map<nccl::Comm, Entry> entries_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_COMMUNICATOR_TABLE_H_
