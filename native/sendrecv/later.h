// SPDX-License-Identifier: Apache-2.0
//
// What waits for NCCL's part where communicators do not block: calls come back before that is done,
// and the application asks for their state until it is.
#ifndef NCCLTUNE_SENDRECV_LATER_H_
#define NCCLTUNE_SENDRECV_LATER_H_

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

class Later {
 public:
  // Takes what NCCL has made as a communicator of the process.
  using Begin = std::function<void(const std::shared_ptr<Communicator>& made, nccl::Comm comm)>;
  Later(const Native& native, Begin begin) : native_(native), begin_(std::move(begin)) {}

  // Until NCCL has made it.
  void Expect(std::shared_ptr<Communicator> made, nccl::Comm comm);
  // Until NCCL has done its part of the group. Null: there is nothing behind that.
  void Keep(const std::shared_ptr<Rest>& rest);

  // Begins the communicator, or does the rest of its last group, if NCCL has done its part; how
  // that went, or what NCCL says.
  nccl::Result Progress(nccl::Comm comm);
  // It ends.
  void Forget(nccl::Comm comm);

 private:
  bool Any() const { return count_.load(std::memory_order_relaxed) != 0; }
  nccl::Result StateOf(nccl::Comm comm) const;
  void Forget(const Rest& rest);

  const Native& native_;
  const Begin begin_;
  std::mutex mutex_;
  std::map<nccl::Comm, std::shared_ptr<Communicator>> coming_;
  std::map<nccl::Comm, std::shared_ptr<Rest>> rests_;
  std::atomic<size_t> count_ = 0;  // of both
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LATER_H_
