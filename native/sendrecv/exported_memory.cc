// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/exported_memory.h"
#include "sendrecv/imported_memory.h"

namespace nccltune::sendrecv {
namespace {

constexpr auto kCheckInterval = std::chrono::seconds(1);
}  // namespace

ExportedMemory::~ExportedMemory() {
  for (const auto& [base, known] : known_) Withdraw(known);
}

void ExportedMemory::Withdraw(const KnownAllocation& known) {
  table_.Withdraw(&record_.exports[known.index]);
}

void ExportedMemory::CheckFreed() {
  if (std::chrono::steady_clock::now() - checked_ > kCheckInterval) WithdrawFreed();
}

void ExportedMemory::WithdrawFreed() {
  checked_ = std::chrono::steady_clock::now();
  std::erase_if(known_, [&](const auto& each) {
    const auto now = driver_.Find(each.first);
    if (now && now->id == each.second.allocation.id) return false;
    Withdraw(each.second);
    return true;
  });
  spans_.MarkStale();
}

ExportEntry* ExportedMemory::Export(const Allocation& allocation) {
  // First withdraw freed allocations, which still occupy entries of the table.
  WithdrawFreed();
  ExportEntry* const free = table_.FindFree();
  if (free == nullptr) return nullptr;
  if (!driver_.Export(allocation, &free->handle)) return nullptr;
  free->chunks = 0;
  free->base = allocation.base;
  free->bytes = allocation.bytes;
  table_.Publish(free);
  known_[allocation.base] = {allocation, static_cast<size_t>(free - record_.exports.data())};
  return free;
}

ExportLookup ExportedMemory::Find(DeviceAddress address, uint64_t bytes, size_t peer) {
  CheckFreed();
  const auto allocation = driver_.Find(address);
  if (!allocation) return {.status = ExportStatus::kNoMemory};
  if (!allocation->shareable) return spans_.Find(address, bytes, peer);
  // `bytes` is the application's number, so the comparison must not overflow.
  if (bytes > allocation->bytes - (address - allocation->base)) {
    return {.status = ExportStatus::kNoMemory};
  }
  const auto known = known_.find(allocation->base);
  ExportEntry* entry = nullptr;
  if (known != known_.end() && known->second.allocation.id == allocation->id) {
    entry = &record_.exports[known->second.index];
  } else {
    entry = Export(*allocation);
    if (entry == nullptr) return {.status = ExportStatus::kTableFull};
  }
  return table_.Request(entry, address - allocation->base, peer);
}

}  // namespace nccltune::sendrecv
