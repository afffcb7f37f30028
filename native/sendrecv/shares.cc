// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/shares.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

namespace nccltune::sendrecv {
namespace {

constexpr auto kSweepEvery = std::chrono::seconds(1);
// Bytes of a peer that it has freed and that are still mapped here.
constexpr uint64_t kMostLate = uint64_t{1} << 30;

// A handle may be opened once in a process for each GPU; communicators share what it gives.
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

Offers::~Offers() {
  for (const auto& [base, known] : known_) TakeBack(known);
}

void Offers::TakeBack(const Known& known) { board_.TakeBack(&card_.shares[known.index]); }

void Offers::Sweep() {
  swept_ = std::chrono::steady_clock::now();
  std::erase_if(known_, [&](const auto& each) {
    const auto now = driver_.Find(each.first);
    if (now && now->id == each.second.allocation.id) return false;
    TakeBack(each.second);
    return true;
  });
  spans_.Sweep();
}

Share* Offers::Offer(const Allocation& allocation) {
  // What was freed had its place among the others.
  Sweep();
  Share* const free = board_.Free();
  if (free == nullptr) return nullptr;
  if (!driver_.Export(allocation, &free->handle)) return nullptr;
  free->chunks = 0;
  free->base = allocation.base;
  free->bytes = allocation.bytes;
  board_.Publish(free);
  known_[allocation.base] = {allocation, static_cast<size_t>(free - card_.shares.data())};
  return free;
}

Found Offers::Find(DeviceAddress address, uint64_t bytes, size_t peer) {
  if (std::chrono::steady_clock::now() - swept_ > kSweepEvery) Sweep();
  const auto allocation = driver_.Find(address);
  if (!allocation) return {.reach = Reach::kNoMemory};
  if (!allocation->shareable) return spans_.Find(address, bytes, peer);
  if (address + bytes > allocation->base + allocation->bytes) return {.reach = Reach::kNoMemory};
  const auto known = known_.find(allocation->base);
  Share* share = nullptr;
  if (known != known_.end() && known->second.allocation.id == allocation->id) {
    share = &card_.shares[known->second.index];
  } else {
    share = Offer(*allocation);
    if (share == nullptr) return {.reach = Reach::kNoRoom};
  }
  return board_.Ask(share, address - allocation->base, peer);
}

Imports::~Imports() {
  for (const auto& [number, mapping] : mappings_) LetGo(mapping);
  for (const Mapping& mapping : late_) LetGo(mapping);
  if (inbox_ != nullptr) inbox_->DropUnless(from_, [](uint64_t) { return false; });
}

Imports::Outcome Imports::Map(const Share& share, uint64_t number, Mapping* mapping) {
  if (kind_ == Kind::kNone) return Outcome::kRefused;
  if (share.chunks != 0) return MapChunks(share.chunks, number, mapping);
  mapping->bytes = share.bytes;
  mapping->base = kind_ == Kind::kDirect ? share.base : TheHandles().Open(driver_, share.handle);
  return mapping->base != 0 ? Outcome::kMapped : Outcome::kRefused;
}

Imports::Outcome Imports::MapChunks(size_t count, uint64_t number, Mapping* mapping) {
  if (inbox_ == nullptr) return Outcome::kRefused;
  const Inbox::Delivery* const delivery = inbox_->Of(from_, number);
  if (delivery == nullptr || (!delivery->refused && delivery->parts.size() < count)) {
    return Outcome::kLater;
  }
  if (!delivery->refused) mapping->base = Chunks(driver_).Map(delivery->parts);
  for (const ChunkMemory& part : delivery->parts) mapping->bytes += part.bytes;
  mapping->chunked = true;
  inbox_->Drop(from_, number);
  return mapping->base != 0 ? Outcome::kMapped : Outcome::kRefused;
}

void Imports::LetGo(const Mapping& mapping) {
  if (mapping.chunked) {
    Chunks(driver_).Unmap(mapping.base, mapping.bytes);
  } else if (kind_ == Kind::kByHandle) {
    TheHandles().Close(driver_, mapping.base);
  }
}

void Imports::LetGoLater(const Mapping& mapping) {
  if (mapping.chunked || kind_ != Kind::kByHandle) {
    LetGo(mapping);
    return;
  }
  late_.push_back(mapping);
  late_bytes_ += mapping.bytes;
}

bool Imports::MakeRoom(const std::function<bool()>& quiet) {
  if (late_bytes_ <= kMostLate) return true;
  if (!quiet()) return false;
  for (const Mapping& mapping : late_) LetGo(mapping);
  late_.clear();
  late_bytes_ = 0;
  return true;
}

void Imports::Look(const std::function<bool()>& quiet) {
  const uint64_t changed = peer_.shares_changed.load();
  if (changed == seen_ || !MakeRoom(quiet)) return;
  // What the peer has told of has come.
  if (inbox_ == nullptr || inbox_->Take()) seen_ = changed;
  std::map<uint64_t, Mapping> kept;
  std::set<uint64_t> offered;
  for (Share& share : peer_.shares) {
    const uint64_t number = share.number.load();
    if (number == 0) continue;
    offered.insert(number);
    const auto known = mappings_.find(number);
    if (known != mappings_.end()) {
      kept.insert(*known);
      continue;
    }
    if ((share.wanted.load() & BitOf(place_)) == 0 || (share.refused.load() & BitOf(place_)) != 0) {
      continue;
    }
    Mapping mapping;
    const Outcome outcome = Map(share, number, &mapping);
    if (outcome == Outcome::kLater) continue;
    const bool mapped = outcome == Outcome::kMapped;
    // Another one's by now: it is new at the next look.
    if (share.number.load() != number) {
      if (mapped) LetGoLater(mapping);
      continue;
    }
    if (mapped) kept[number] = mapping;
    (mapped ? share.imported : share.refused).fetch_or(BitOf(place_));
  }
  for (const auto& [number, mapping] : mappings_) {
    if (!kept.contains(number)) LetGoLater(mapping);
  }
  mappings_ = std::move(kept);
  if (inbox_ != nullptr) {
    inbox_->DropUnless(from_, [&](uint64_t number) { return offered.contains(number); });
  }
}

DeviceAddress Imports::Resolve(uint64_t number, uint64_t offset) const {
  const auto found = mappings_.find(number);
  return found == mappings_.end() ? 0 : found->second.base + offset;
}

}  // namespace nccltune::sendrecv
