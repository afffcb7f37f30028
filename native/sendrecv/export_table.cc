// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/export_table.h"

namespace nccltune::sendrecv {

// Uses the entries in a cycle, so that a withdrawn entry is not filled again at once. A peer may be
// reading the entry at that moment.
ExportEntry* ExportTable::FindFree() {
  for (size_t i = 0; i < RankRecord::kExports; ++i) {
    ExportEntry& entry = record_.exports[(next_ + i) % RankRecord::kExports];
    if (entry.number.load() != 0) continue;
    next_ = (next_ + i + 1) % RankRecord::kExports;
    return &entry;
  }
  return nullptr;
}

void ExportTable::Publish(ExportEntry* entry) {
  entry->wanted.store(0);
  entry->imported.store(0);
  entry->refused.store(0);
  entry->number.store(++made_);
}

void ExportTable::Withdraw(ExportEntry* entry) {
  entry->number.store(0);
  NotifyPeers();
}

ExportLookup ExportTable::Request(ExportEntry* entry, uint64_t offset, size_t peer) {
  ExportLookup lookup = {
      .status = ExportStatus::kPending, .number = entry->number.load(), .offset = offset};
  if ((entry->wanted.fetch_or(PlaceBit(peer)) & PlaceBit(peer)) == 0) NotifyPeers();
  if ((entry->imported.load() & PlaceBit(peer)) != 0) lookup.status = ExportStatus::kMapped;
  if ((entry->refused.load() & PlaceBit(peer)) != 0) lookup.status = ExportStatus::kRefused;
  return lookup;
}

}  // namespace nccltune::sendrecv
