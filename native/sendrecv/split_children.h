// SPDX-License-Identifier: Apache-2.0
//
// Communicators that are split or shrunk from a nonblocking parent. NCCL creates them after the
// call has returned, and writes the handle of each when it is complete (2.18 to 2.30). Peers must
// not wait until the program asks for its handle. So NCCL writes the handle to memory of this
// library. A thread of the library polls that memory, begins the communicator and passes the handle
// on.
#ifndef NCCLTUNE_SENDRECV_SPLIT_CHILDREN_H_
#define NCCLTUNE_SENDRECV_SPLIT_CHILDREN_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "sendrecv/communicator.h"
#include "sendrecv/nccl_api.h"

namespace nccltune::sendrecv {

class SplitChildren {
  struct Child {
    std::shared_ptr<Communicator> made;  // null: creating it failed
    nccl::Comm parent = nullptr;
    nccl::Comm* wanted = nullptr;  // where the program expects the handle
    nccl::Comm handle = nullptr;   // written by NCCL

    nccl::Comm Handle() const { return __atomic_load_n(&handle, __ATOMIC_ACQUIRE); }
    void Publish() const { __atomic_store_n(wanted, Handle(), __ATOMIC_RELEASE); }
  };

 public:
  // Called with each communicator that NCCL has created.
  using Begin = std::function<void(const std::shared_ptr<Communicator>& made, nccl::Comm handle)>;
  explicit SplitChildren(Begin begin) : begin_(std::move(begin)) {}

  // Returns the address to pass to NCCL instead of `wanted`.
  nccl::Comm* AddChild(std::shared_ptr<Communicator> made, nccl::Comm parent, nccl::Comm* wanted);
  bool HasChildren() const { return count_.load(std::memory_order_acquire) != 0; }
  // Begins the children that NCCL has created. `failed`: a parent whose children NCCL could not
  // create. Thread-safe.
  void BeginMade(nccl::Comm failed = nullptr);

  // Keeps the memory for the children of a parent that ends, until NCCL no longer writes to it.
  class KeptChildren {
   public:
    explicit KeptChildren(std::list<Child> children) : children_(std::move(children)) {}
    ~KeptChildren();
    KeptChildren(const KeptChildren&) = delete;
    KeptChildren& operator=(const KeptChildren&) = delete;

   private:
    const std::list<Child> children_;
  };
  KeptChildren End(nccl::Comm parent);

 private:
  const Begin begin_;
  std::mutex mutex_;
  std::list<Child> children_;
  std::atomic<size_t> count_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SPLIT_CHILDREN_H_
