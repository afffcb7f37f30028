// SPDX-License-Identifier: Apache-2.0
// The communicators of the process: those that the library handles, those that NCCL is still
// creating, and those that have ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "sendrecv/calls/message_call.h"
#include "sendrecv/group/communicator.h"
#include "sendrecv/hooks/interpose.h"
#include "sendrecv/hooks/nccl_api.h"

namespace nccltune::sendrecv {

// The communicators that the library handles, by NCCL's handle (ncclComm_t).
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

// Communicators that are split or shrunk from a nonblocking parent. NCCL creates each child after
// the call has returned, and writes the child's handle when the child is complete (2.18 to 2.30).
// Peers wait for this rank, but the program may ask for the child's handle late. So the library
// makes NCCL write the handle to the library's memory. A thread of the library polls that memory,
// begins the communicator and passes the handle on to the program.
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

// Communicators and groups whose NCCL call has returned ncclInProgress, because a communicator is
// nonblocking. When the application polls or makes its next call, the library asks NCCL whether the
// pending call is complete. If so, the library begins the communicator or finishes the group.
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

// Communicators that the application has destroyed or aborted. They are kept until their operations
// are complete. NCCL would have buffered small sends, so that the peer could receive them later.
// With copy engines the peer may still have to copy them from this rank's memory.
class RetiredCommunicators {
 public:
  // Does nothing if `communicator` is null.
  void Add(const std::shared_ptr<Communicator>& communicator);
  // Frees the communicators whose operations are complete, and waits up to `patience` for the
  // others. If `patience` is not 0, waits up to 30 s for living peers that have not received all
  // messages. Waits up to 1 s for calls of other threads. The remaining communicators are tried
  // again when the next communicator ends.
  void Release(std::chrono::milliseconds patience);

 private:
  std::vector<std::shared_ptr<Communicator>> All();
  bool HaveUnreceivedSends();
  bool ReleaseOnce();

  std::mutex mutex_;
  std::vector<std::shared_ptr<Communicator>> retired_;
};

// Called at exit: waits up to 5 s for peers that have not received all messages.
void WaitForReceivers();

}  // namespace nccltune::sendrecv
