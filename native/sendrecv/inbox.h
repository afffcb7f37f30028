// SPDX-License-Identifier: Apache-2.0
//
// Receives the chunks that peers send: one inbox for all peers of a communicator.
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

// Most chunks of one exported entry: 8 GiB of the smallest chunks.
inline constexpr size_t kMaxEntryChunks = 4096;

// Imports received chunks and keeps them until they are mapped. Not thread-safe.
class Inbox {
 public:
  struct ReceivedChunks {
    std::vector<ChunkMemory> chunks;  // consecutive chunks, from the first one
    bool refused = false;             // importing a chunk failed
  };

  // `memory`: the records of all ranks that may send.
  Inbox(const CudaDriver& driver, const SegmentMemory& memory, Mailbox& mailbox)
      : importer_(driver), memory_(memory), mailbox_(mailbox) {}
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Reads the datagrams that have arrived. Returns false if there may be more.
  bool ReadAll();
  // Returns the chunks received for an exported entry of the rank in `place`; null: none.
  const ReceivedChunks* Find(size_t place, uint64_t number) const;
  void Drop(size_t place, uint64_t number);
  // Drops the chunks of all entries that the rank no longer exports.
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
