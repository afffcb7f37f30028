// SPDX-License-Identifier: Apache-2.0
//
// Groups of small messages alone, of one communicator in one stream. They are NCCL's, nobody
// decides anything of them, and they are to be as fast as without us.
#ifndef NCCLTUNE_SENDRECV_SMALL_H_
#define NCCLTUNE_SENDRECV_SMALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sendrecv/calls.h"
#include "sendrecv/communicator.h"
#include "sendrecv/interpose.h"
#include "sendrecv/underway.h"

namespace nccltune::sendrecv {

// The last such group of a thread, and of its next one the messages, for as long as they are like
// those: of the same peers, types and stream, and small. Nothing of them has to be looked up then.
// NCCL's own code has driven ours out of the nearest caches until the next group comes, so what is
// touched counts, not what is computed.
class SmallCalls {
 public:
  // The next message of the open group is like that of the last one; it is kept.
  bool Take(Role role, void* buffer, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
            nccl::Stream stream) {
    if (taken_ == size_) return false;
    One& one = all_[taken_];
    const bool like = comm == comm_ && stream == stream_ && peer == one.peer && role == one.role &&
                      type == one.type && count - 1 < one.most && buffer != nullptr;
    if (!like) return false;
    one.buffer = buffer;
    one.count = count;
    ++taken_;
    return true;
  }
  // The open group is the last one again, so far.
  bool IsWhole() const { return taken_ != 0 && taken_ == size_; }

  // NCCL's, as long as the communicator's last group is still that one and nothing is wrong.
  // `changes`: how often communicators came or went. Nothing: all has to be looked up again.
  [[gnu::hot]] std::optional<nccl::Result> Run(const Native& native, bool grouped,
                                               uint64_t changes);

  // What was kept, as calls without a communicator.
  std::vector<Call> Return();

  // A group that nothing was kept of. Nothing: it has other messages in it, or something is wrong.
  std::optional<nccl::Result> RunNew(const CallGroup& group, const Native& native,
                                     uint64_t changes);

 private:
  struct One {
    uint64_t most = 0;  // elements that are small
    int peer = 0;
    nccl::DataType type = nccl::kInt8;
    uint32_t size = 0;  // bytes of an element
    Role role = Role::kSender;
    LaneEnd* end = nullptr;  // null: there is no lane yet, or never will be
    void* buffer = nullptr;
    size_t count = 0;
  };

  [[gnu::hot]] nccl::Result CallAll(const Native& native, size_t size, bool grouped);

  nccl::Comm comm_ = nullptr;
  nccl::Stream stream_ = nullptr;
  uint32_t taken_ = 0;
  uint32_t size_ = 0;                     // of `all_`, near the others; 0: no group is the last one
  Communicator* communicator_ = nullptr;  // while nothing has changed
  uint64_t changes_ = 0;
  uint64_t number_ = 0;  // that the communicator knows it by
  std::vector<One> all_;
  std::vector<int> peers_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SMALL_H_
