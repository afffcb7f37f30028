// SPDX-License-Identifier: Apache-2.0
//
// The table of exported memory in a rank's own record: which entries are free, and which peers have
// mapped the others.
#ifndef NCCLTUNE_SENDRECV_EXPORT_TABLE_H_
#define NCCLTUNE_SENDRECV_EXPORT_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "sendrecv/segment.h"

namespace nccltune::sendrecv {

enum class ExportStatus : uint8_t {
  kMapped,       // the peer has mapped it
  kPending,      // exported; the peer has not mapped it yet
  kRefused,      // the peer could not map it
  kUnshareable,  // it cannot be shared: memory of a pool, or cuMemMap memory not created for
                 // sharing
  kNoMemory,     // not GPU memory of this process, or it spans several allocations
  kTableFull,
};

// Where a peer finds the memory of a message.
struct ExportLookup {
  ExportStatus status = ExportStatus::kNoMemory;
  uint64_t number = 0;  // of the entry
  uint64_t offset = 0;
};

inline uint64_t PlaceBit(size_t place) { return uint64_t{1} << place; }

class ExportTable {
 public:
  explicit ExportTable(RankRecord& record) : record_(record) {}

  // Returns an entry to fill in; null: all are in use.
  ExportEntry* FindFree();
  // Makes an entry visible after it is filled in.
  void Publish(ExportEntry* entry);
  void Withdraw(ExportEntry* entry);
  // Makes peers read the table at their next call.
  void NotifyPeers() { ++record_.exports_changed; }
  // Asks a peer to map the entry, if not done yet. Returns whether it has.
  ExportLookup Request(ExportEntry* entry, uint64_t offset, size_t peer);

 private:
  RankRecord& record_;
  size_t next_ = 0;
  uint64_t made_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_EXPORT_TABLE_H_
