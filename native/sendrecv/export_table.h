// SPDX-License-Identifier: Apache-2.0
//
// The table of the memory that this rank exports to its peers. The table is in the rank's record in
// shared memory (segment.h). Each entry states which peers have mapped it.
#ifndef NCCLTUNE_SENDRECV_EXPORT_TABLE_H_
#define NCCLTUNE_SENDRECV_EXPORT_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "sendrecv/segment.h"

namespace nccltune::sendrecv {

enum class ExportStatus : uint8_t {
  kMapped,   // the peer has mapped the memory
  kPending,  // exported; the peer has not mapped it yet
  kRefused,  // the peer could not map the memory
  // The memory cannot be shared: it is of a memory pool, or was not created for sharing (cuMemMap).
  kUnshareable,
  kNoMemory,  // not GPU memory of this process, or it spans several allocations
  kTableFull,
};

// The state of the memory of a message, and where the peer finds it.
struct ExportLookup {
  ExportStatus status = ExportStatus::kNoMemory;
  uint64_t number = 0;  // number of the exported entry
  uint64_t offset = 0;
};

// Returns the bit for a rank's place in ExportEntry::wanted, imported and refused.
inline uint64_t PlaceBit(size_t place) { return uint64_t{1} << place; }

class ExportTable {
 public:
  explicit ExportTable(RankRecord& record) : record_(record) {}

  // Returns a free entry to fill in, or null if all are in use.
  ExportEntry* FindFree();
  // Makes an entry visible to peers after it is filled in.
  void Publish(ExportEntry* entry);
  void Withdraw(ExportEntry* entry);
  // Makes peers read the table at their next call.
  void NotifyPeers() { ++record_.exports_changed; }
  // Asks a peer to map the entry, unless the peer was asked before. Returns whether the peer has
  // mapped or refused the entry, with the entry's number and `offset`.
  ExportLookup Request(ExportEntry* entry, uint64_t offset, size_t peer);

 private:
  RankRecord& record_;
  size_t next_ = 0;
  uint64_t made_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_EXPORT_TABLE_H_
