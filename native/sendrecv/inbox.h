// SPDX-License-Identifier: Apache-2.0
//
// What came of memory that peers offer in chunks: one for all peers of a communicator.
#ifndef NCCLTUNE_SENDRECV_INBOX_H_
#define NCCLTUNE_SENDRECV_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "sendrecv/chunks.h"
#include "sendrecv/mailbox.h"
#include "sendrecv/segment.h"

namespace nccltune::sendrecv {

// Of one share at most; 8 GiB of the smallest.
inline constexpr size_t kMostChunks = 4096;

// Not for several threads at once.
class Inbox {
 public:
  struct Delivery {
    std::vector<ChunkMemory> parts;  // from the first on, without a gap
    bool refused = false;            // some of it cannot be had
  };

  // `memory`: the cards of those who may send.
  Inbox(const CudaDriver& driver, const SegmentMemory& memory, Mailbox& mailbox)
      : chunks_(driver), memory_(memory), mailbox_(mailbox) {}
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Takes what came. False: there may be more.
  bool Take();
  // Of the share of that number of the rank in that place; null: nothing has come.
  const Delivery* Of(size_t place, uint64_t number) const;
  void Drop(size_t place, uint64_t number);
  // Those of a rank that it does not offer any more.
  void DropUnless(size_t place, const std::function<bool(uint64_t)>& offered);

 private:
  using Key = std::pair<size_t, uint64_t>;
  void Accept(const Mailbox::Received& received);
  void Release(const Delivery& delivery) const;

  Chunks chunks_;
  const SegmentMemory& memory_;
  Mailbox& mailbox_;
  std::map<Key, Delivery> deliveries_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_INBOX_H_
