// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/shares.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace nccltune::sendrecv {
namespace {

constexpr auto kSweepEvery = std::chrono::seconds(1);

uint64_t Bit(size_t place) { return uint64_t{1} << place; }

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

void Offers::TakeBack(const Known& known) {
  card_.shares[known.index].number.store(0);
  ++card_.shares_changed;
}

void Offers::Sweep() {
  swept_ = std::chrono::steady_clock::now();
  std::erase_if(known_, [&](const auto& each) {
    const auto now = driver_.Find(each.first);
    if (now && now->id == each.second.allocation.id) return false;
    TakeBack(each.second);
    return true;
  });
}

Share* Offers::Offer(const Allocation& allocation) {
  // What was freed had its place among the others.
  Sweep();
  const auto free = std::ranges::find_if(
      card_.shares, [](const Share& share) { return share.number.load() == 0; });
  if (free == card_.shares.end()) return nullptr;
  if (!driver_.Export(allocation, &free->handle)) return nullptr;
  free->base = allocation.base;
  free->bytes = allocation.bytes;
  free->wanted.store(0);
  free->imported.store(0);
  free->refused.store(0);
  free->number.store(++made_);
  known_[allocation.base] = {allocation, static_cast<size_t>(free - card_.shares.begin())};
  return &*free;
}

Found Offers::Find(DeviceAddress address, uint64_t bytes, size_t peer) {
  if (std::chrono::steady_clock::now() - swept_ > kSweepEvery) Sweep();
  const auto allocation = driver_.Find(address);
  if (!allocation || address + bytes > allocation->base + allocation->bytes) {
    return {.reach = Reach::kNoMemory};
  }
  if (!allocation->shareable) return {.reach = Reach::kUnshared};
  const auto known = known_.find(allocation->base);
  Share* share = nullptr;
  if (known != known_.end() && known->second.allocation.id == allocation->id) {
    share = &card_.shares[known->second.index];
  } else {
    share = Offer(*allocation);
    if (share == nullptr) return {.reach = Reach::kNoRoom};
  }
  Found found = {.reach = Reach::kNotYet,
                 .number = share->number.load(),
                 .offset = address - allocation->base};
  if ((share->wanted.fetch_or(Bit(peer)) & Bit(peer)) == 0) ++card_.shares_changed;
  if ((share->imported.load() & Bit(peer)) != 0) found.reach = Reach::kReached;
  if ((share->refused.load() & Bit(peer)) != 0) found.reach = Reach::kNever;
  return found;
}

Imports::~Imports() {
  for (const auto& [number, base] : bases_) LetGo(base);
}

DeviceAddress Imports::Map(const Share& share) {
  if (kind_ == Kind::kDirect) return share.base;
  return kind_ == Kind::kByHandle ? TheHandles().Open(driver_, share.handle) : 0;
}

void Imports::LetGo(DeviceAddress base) {
  if (kind_ == Kind::kByHandle) TheHandles().Close(driver_, base);
}

void Imports::Look() {
  const uint64_t changed = peer_.shares_changed.load();
  if (changed == seen_) return;
  seen_ = changed;
  std::map<uint64_t, DeviceAddress> kept;
  for (Share& share : peer_.shares) {
    const uint64_t number = share.number.load();
    if (number == 0) continue;
    const auto known = bases_.find(number);
    if (known != bases_.end()) {
      kept.insert(*known);
      continue;
    }
    if ((share.wanted.load() & Bit(place_)) == 0 || (share.refused.load() & Bit(place_)) != 0) {
      continue;
    }
    const DeviceAddress base = Map(share);
    // Another one's by now: it is new at the next look.
    if (share.number.load() != number) {
      if (base != 0) LetGo(base);
      continue;
    }
    if (base != 0) kept[number] = base;
    (base != 0 ? share.imported : share.refused).fetch_or(Bit(place_));
  }
  for (const auto& [number, base] : bases_) {
    if (!kept.contains(number)) LetGo(base);
  }
  bases_ = std::move(kept);
}

DeviceAddress Imports::Resolve(uint64_t number, uint64_t offset) const {
  const auto found = bases_.find(number);
  return found == bases_.end() ? 0 : found->second + offset;
}

}  // namespace nccltune::sendrecv
