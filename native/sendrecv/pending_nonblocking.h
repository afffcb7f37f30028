// SPDX-License-Identifier: Apache-2.0
//
// Communicators and groups whose NCCL call has returned ncclInProgress, because a communicator is
// nonblocking. When the application polls or makes its next call, the library asks NCCL whether the
// pending call is complete. If so, the library begins the communicator or finishes the group.
#ifndef NCCLTUNE_SENDRECV_PENDING_NONBLOCKING_H_
#define NCCLTUNE_SENDRECV_PENDING_NONBLOCKING_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "sendrecv/calls.h"
#include "sendrecv/communicator.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

class PendingNonblocking {
 public:
  // Called with a communicator that NCCL has created.
  using Begin = std::function<void(const std::shared_ptr<Communicator>& made, nccl::Comm comm)>;
  PendingNonblocking(const Native& native, Begin begin)
      : native_(native), begin_(std::move(begin)) {}

  // Adds a communicator that NCCL has not created yet.
  void AddCommunicator(std::shared_ptr<Communicator> made, nccl::Comm comm);
  // Adds a group whose NCCL calls are not complete. Does nothing if `group` is null.
  void AddGroup(const std::shared_ptr<PendingGroup>& group);

  // Returns ncclSuccess if nothing is pending on the communicator. Otherwise asks NCCL for the
  // state of its calls. After success, begins a new communicator or finishes the pending group, and
  // returns the result. After an error, abandons the pending group and returns the error. Returns
  // ncclInProgress if the calls are not complete.
  nccl::Result Progress(nccl::Comm comm);
  // Removes a communicator that ends, and abandons its pending group.
  void Forget(nccl::Comm comm);

 private:
  bool Any() const { return count_.load(std::memory_order_relaxed) != 0; }
  nccl::Result StateOf(nccl::Comm comm) const;
  void Forget(const PendingGroup& group);

  const Native& native_;
  const Begin begin_;
  std::mutex mutex_;
  std::map<nccl::Comm, std::shared_ptr<Communicator>> new_communicators_;
  std::map<nccl::Comm, std::shared_ptr<PendingGroup>> groups_;
  std::atomic<size_t> count_ = 0;  // number of entries in both maps
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_PENDING_NONBLOCKING_H_
