// SPDX-License-Identifier: Apache-2.0
//
// Receives chunks of memory that peers send as file descriptors. A communicator has one inbox for
// all its peers. A rank is identified by its place, the index of its record in the segment
// (segment.h).
#ifndef NCCLTUNE_SENDRECV_INBOX_H_
#define NCCLTUNE_SENDRECV_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "sendrecv/mailbox.h"
#include "sendrecv/mapped_chunks.h"
#include "sendrecv/segment.h"

namespace nccltune::sendrecv {

// Most chunks of one exported entry. With the smallest chunks, of 2 MiB, they hold 8 GiB.
inline constexpr size_t kMaxEntryChunks = 4096;

// Imports received chunks and keeps them until they are mapped. Not thread-safe.
class Inbox {
 public:
  struct ReceivedChunks {
    std::vector<ChunkMemory> chunks;  // consecutive chunks, from the first one
    bool refused = false;             // importing a chunk failed
  };

  // `memory` has the records of all ranks that may send.
  Inbox(const CudaDriver& driver, const SegmentMemory& memory, Mailbox& mailbox)
      : importer_(driver), memory_(memory), mailbox_(mailbox) {}
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Reads the datagrams that have arrived. Returns false if there may be more.
  bool ReadAll();
  // Returns the chunks that were received for an exported entry of the rank at `place`. Returns
  // null if there are none.
  const ReceivedChunks* Find(size_t place, uint64_t number) const;
  // Drops the chunks that were received for one entry.
  void Drop(size_t place, uint64_t number);
  // Drops the chunks of all entries that the rank at `place` no longer exports. `exported` returns
  // whether the rank still exports the entry of a number.
  void DropUnless(size_t place, const std::function<bool(uint64_t)>& exported);

 private:
  using Key = std::pair<size_t, uint64_t>;
  void Accept(const Mailbox::Received& received);
  void Release(const ReceivedChunks& delivery) const;

  MappedChunks importer_;
  const SegmentMemory& memory_;
  Mailbox& mailbox_;
  std::map<Key, ReceivedChunks> deliveries_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_INBOX_H_
