// SPDX-License-Identifier: Apache-2.0
//
// Communicators that are split or shrunk from others that do not block. NCCL makes them behind the
// call and writes the handle of each when it is done (2.18 to 2.30); the program learns its rank in
// it whenever it asks. Others must not wait for that, so the handle is written to memory of ours,
// which a thread of ours looks at: the part begins, and the program has its handle.
#ifndef NCCLTUNE_SENDRECV_PARTS_H_
#define NCCLTUNE_SENDRECV_PARTS_H_

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

class Parts {
  struct Part {
    std::shared_ptr<Communicator> made;  // null: it is of no use any more
    nccl::Comm parent = nullptr;
    nccl::Comm* wanted = nullptr;  // the program's
    nccl::Comm handle = nullptr;   // NCCL's to write

    nccl::Comm Handle() const { return __atomic_load_n(&handle, __ATOMIC_ACQUIRE); }
    void Tell() const { __atomic_store_n(wanted, Handle(), __ATOMIC_RELEASE); }
  };

 public:
  // Takes what NCCL has made as a communicator of the process.
  using Begin = std::function<void(const std::shared_ptr<Communicator>& made, nccl::Comm handle)>;
  explicit Parts(Begin begin) : begin_(std::move(begin)) {}

  // Where NCCL is to write the handle that `wanted` will have.
  nccl::Comm* Expect(std::shared_ptr<Communicator> made, nccl::Comm parent, nccl::Comm* wanted);
  bool Any() const { return count_.load(std::memory_order_acquire) != 0; }
  // Begins those that NCCL has made. `failed`: NCCL has failed to make those of it. From any
  // thread.
  void Look(nccl::Comm failed = nullptr);

  // Of a parent that ends, until NCCL has ended it and writes no more.
  class Ending {
   public:
    explicit Ending(std::list<Part> parts) : parts_(std::move(parts)) {}
    ~Ending();
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    const std::list<Part> parts_;
  };
  Ending End(nccl::Comm parent);

 private:
  const Begin begin_;
  std::mutex mutex_;
  std::list<Part> parts_;
  std::atomic<size_t> count_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_PARTS_H_
