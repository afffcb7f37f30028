// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/memory/imported_memory.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "sendrecv/collective_work.h"

namespace nccltune::sendrecv {
namespace {

// Most bytes that a peer has withdrawn and that are still mapped here.
constexpr uint64_t kMaxDeferredBytes = uint64_t{1} << 30;

// A process can open a handle only once for each GPU, so communicators share the mapping.
class OpenHandles {
 public:
  DeviceAddress Open(const CudaDriver& driver, const cu::IpcMemory& handle) {
    const std::scoped_lock lock(mutex_);
    const Key key = KeyOf(driver, handle);
    Entry& entry = entries_[key];
    if (entry.users == 0) entry.base = driver.Import(handle);
    if (entry.base == 0) {
      entries_.erase(key);
      return 0;
    }
    ++entry.users;
    return entry.base;
  }

  void Close(const CudaDriver& driver, DeviceAddress base) {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find_if(entries_, [&](const auto& each) {
      return each.second.base == base && each.first.first == driver.context();
    });
    if (found == entries_.end() || --found->second.users != 0) return;
    driver.CloseImport(base);
    entries_.erase(found);
  }

 private:
  using Key = std::pair<cu::Context, std::string>;
  struct Entry {
    DeviceAddress base = 0;
    size_t users = 0;
  };
  static Key KeyOf(const CudaDriver& driver, const cu::IpcMemory& handle) {
    return {driver.context(), std::string(handle.reserved, sizeof(handle.reserved))};
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

OpenHandles& TheHandles() {
  static OpenHandles& handles = *new OpenHandles;
  return handles;
}

}  // namespace

ImportedMemory::~ImportedMemory() {
  for (const auto& [number, mapping] : mappings_) Unmap(mapping);
  CloseWithdrawn();
  if (inbox_ != nullptr) inbox_->DropUnless(from_, [](uint64_t) { return false; });
}

ImportedMemory::MapResult ImportedMemory::Map(const ExportEntry& entry, uint64_t number,
                                              Mapping* mapping) {
  if (kind_ == Kind::kNone) return MapResult::kRefused;
  if (entry.chunks != 0) return MapChunks(entry.chunks, number, mapping);
  mapping->bytes = entry.bytes;
  mapping->base = kind_ == Kind::kDirect ? entry.base : TheHandles().Open(driver_, entry.handle);
  if (mapping->base == 0) return MapResult::kRefused;
  // Do not trust the size that the peer has written: the allocation may be smaller.
  const auto found = driver_.Find(mapping->base);
  if (found && found->base == mapping->base) {
    mapping->bytes = std::min(mapping->bytes, found->bytes);
  }
  return MapResult::kMapped;
}

ImportedMemory::MapResult ImportedMemory::MapChunks(size_t count, uint64_t number,
                                                    Mapping* mapping) {
  if (inbox_ == nullptr || count > kMaxEntryChunks) return MapResult::kRefused;
  const Inbox::ReceivedChunks* const delivery = inbox_->Find(from_, number);
  if (delivery == nullptr || (!delivery->refused && delivery->chunks.size() < count)) {
    return MapResult::kNotDelivered;
  }
  if (!delivery->refused) mapping->base = MappedChunks(driver_).Map(delivery->chunks);
  for (const ChunkMemory& chunk : delivery->chunks) mapping->bytes += chunk.bytes;
  mapping->chunked = true;
  inbox_->Drop(from_, number);
  return mapping->base != 0 ? MapResult::kMapped : MapResult::kRefused;
}

void ImportedMemory::Unmap(const Mapping& mapping) {
  if (mapping.chunked) {
    MappedChunks(driver_).Unmap(mapping.base, mapping.bytes);
  } else if (kind_ == Kind::kByHandle) {
    TheHandles().Close(driver_, mapping.base);
  }
}

void ImportedMemory::UnmapLater(const Mapping& mapping) {
  if (mapping.chunked || kind_ != Kind::kByHandle) {
    Unmap(mapping);
    return;
  }
  deferred_.push_back(mapping);
  CollectiveWork::Get().AddWaiting(1);
  deferred_bytes_ += mapping.bytes;
}

bool ImportedMemory::MakeRoom(const std::function<bool()>& is_idle) {
  if (deferred_bytes_ <= kMaxDeferredBytes) return true;
  if (!is_idle()) return false;
  CloseWithdrawn();
  return true;
}

void ImportedMemory::CloseWithdrawn() {
  for (const Mapping& mapping : deferred_) Unmap(mapping);
  CollectiveWork::Get().AddWaiting(-static_cast<int64_t>(deferred_.size()));
  deferred_.clear();
  deferred_bytes_ = 0;
}

bool ImportedMemory::UnmapWithdrawn() {
  const uint64_t changed = peer_.exports_changed.load();
  if (std::exchange(seen_withdrawals_, changed) != changed) {
    std::set<uint64_t> exported;
    for (const ExportEntry& entry : peer_.exports) exported.insert(entry.number.load());
    std::erase_if(mappings_, [&](const auto& each) {
      if (exported.contains(each.first)) return false;
      UnmapLater(each.second);
      return true;
    });
  }
  return !deferred_.empty();
}

void ImportedMemory::Update(const std::function<bool()>& is_idle) {
  const uint64_t changed = peer_.exports_changed.load();
  if (changed == seen_changes_ || !MakeRoom(is_idle)) return;
  // Keep the old value if datagrams are left, so that the next call reads them.
  if (inbox_ == nullptr || inbox_->ReadAll()) seen_changes_ = changed;
  std::map<uint64_t, Mapping> kept;
  std::set<uint64_t> exported;
  for (ExportEntry& entry : peer_.exports) {
    const uint64_t number = entry.number.load();
    if (number == 0) continue;
    exported.insert(number);
    const auto known = mappings_.find(number);
    if (known != mappings_.end()) {
      kept.insert(*known);
      continue;
    }
    if ((entry.wanted.load() & PlaceBit(place_)) == 0 ||
        (entry.refused.load() & PlaceBit(place_)) != 0) {
      continue;
    }
    Mapping mapping;
    const MapResult result = Map(entry, number, &mapping);
    if (result == MapResult::kNotDelivered) continue;
    const bool mapped = result == MapResult::kMapped;
    // The peer has reused the entry meanwhile. The next call maps the entry's new memory.
    if (entry.number.load() != number) {
      if (mapped) UnmapLater(mapping);
      continue;
    }
    if (mapped) kept[number] = mapping;
    (mapped ? entry.imported : entry.refused).fetch_or(PlaceBit(place_));
  }
  for (const auto& [number, mapping] : mappings_) {
    if (!kept.contains(number)) UnmapLater(mapping);
  }
  mappings_ = std::move(kept);
  if (inbox_ != nullptr) {
    inbox_->DropUnless(from_, [&](uint64_t number) { return exported.contains(number); });
  }
}

DeviceAddress ImportedMemory::Resolve(uint64_t number, uint64_t offset, uint64_t bytes) const {
  const auto found = mappings_.find(number);
  if (found == mappings_.end()) return 0;
  // The peer has written `offset`, which may be any number, so the check must not overflow.
  const Mapping& mapping = found->second;
  const bool inside = offset <= mapping.bytes && bytes <= mapping.bytes - offset;
  return inside ? mapping.base + offset : 0;
}

}  // namespace nccltune::sendrecv
