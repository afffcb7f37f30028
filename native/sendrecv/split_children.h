// SPDX-License-Identifier: Apache-2.0
//
// Communicators that are split or shrunk from a nonblocking parent. NCCL creates each child after
// the call has returned, and writes the child's handle when the child is complete (2.18 to 2.30).
// Peers wait for this rank, but the program may ask for the child's handle late. So the library
// makes NCCL write the handle to the library's memory. A thread of the library polls that memory,
// begins the communicator and passes the handle on to the program.
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
    std::shared_ptr<Communicator> made;  // null if creating it failed or its parent has ended
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

  // Adds a child. Returns the address to pass to NCCL instead of `wanted`.
  nccl::Comm* AddChild(std::shared_ptr<Communicator> made, nccl::Comm parent, nccl::Comm* wanted);
  bool HasChildren() const { return count_.load(std::memory_order_acquire) != 0; }
  // Begins the children that NCCL has created. `failed` is a parent whose children NCCL could not
  // create, or null. Thread-safe.
  void BeginMade(nccl::Comm failed = nullptr);

  // Owns the memory to which NCCL writes the handles of a parent's children, while the parent ends.
  // Destroy the object when NCCL no longer writes to that memory. The destructor passes the handles
  // that NCCL has written to the program.
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
