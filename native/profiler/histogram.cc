// SPDX-License-Identifier: Apache-2.0
#include "profiler/histogram.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

namespace nccltune::profiler {
namespace {

constexpr unsigned kBits = 8;  // of each member of a packed key
// A call has its place in one of two buckets of this many slots, the one with more free slots. So a
// search costs as little in a full table as in an empty one, and all of 200 rows have a place in
// 256 slots nearly always.
constexpr size_t kBucket = 8;

uint64_t Mixed(uint64_t key, uint64_t bytes) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  uint64_t hash = (key ^ std::rotl(bytes * kOdd, 31)) * kOdd;
  hash ^= hash >> 32U;
  return hash;
}

uint8_t BytesOfType(const char* word) {
  // NCCL 2.27 to 2.30 have no name for ncclUint8, the type of PyTorch's byte and bool.
  if (std::strcmp(word, "Unknown") == 0) return 1;
  const char* digit =
      std::find_if(word, word + std::strlen(word), [](char c) { return c >= '0' && c <= '9'; });
  unsigned bits = 0;
  for (; *digit >= '0' && *digit <= '9' && bits < 1000; ++digit) {
    bits = bits * 10 + static_cast<unsigned>(*digit - '0');
  }
  return bits % 8 == 0 && bits <= 128 ? static_cast<uint8_t>(bits / 8) : uint8_t{0};
}

}  // namespace

uint8_t WordTable::Search(const char* word, size_t count) const {
  for (size_t number = 1; number < count; ++number) {
    const auto& text = words_[number].text;
    if (std::strncmp(text.data(), word, text.size() - 1) == 0) return static_cast<uint8_t>(number);
  }
  return 0;
}

uint8_t WordTable::NumberOf(const char* word) {
  if (word == nullptr || *word == '\0') return 0;
  const auto address = reinterpret_cast<uint64_t>(word);
  std::atomic<uint64_t>& cached = cache_[(address ^ address >> 6U) % cache_.size()];
  const uint64_t entry = cached.load(std::memory_order_acquire);
  if (entry >> 8U == (address & (~uint64_t{0} >> 8U)) && entry != 0) {
    const auto number = static_cast<uint8_t>(entry);
    const auto& text = words_[number].text;
    if (std::strncmp(text.data(), word, text.size() - 1) == 0) return number;
  }
  uint8_t number = Search(word, count_.load(std::memory_order_acquire));
  if (number == 0) {
    const std::scoped_lock lock(mutex_);
    const size_t count = count_.load(std::memory_order_relaxed);
    number = Search(word, count);
    if (number == 0) {
      if (count == kOther) return kOther;
      Entry& added = words_[count];
      std::strncpy(added.text.data(), word, added.text.size() - 1);
      added.type_bytes = BytesOfType(added.text.data());
      number = static_cast<uint8_t>(count);
      count_.store(count + 1, std::memory_order_release);
    }
  }
  cached.store(address << 8U | number, std::memory_order_release);
  return number;
}

Durations* Slot::MadeDurations() {
  Durations* found = durations.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  std::unique_ptr<Durations> made(new (std::nothrow) Durations());
  if (made != nullptr && durations.compare_exchange_strong(found, made.get())) {
    found = made.release();
  }
  return found;
}

void Slot::AddDuration(uint64_t ns) {
  Durations* const own = MadeDurations();
  if (own == nullptr) return;
  own->total_ns.fetch_add(ns, std::memory_order_relaxed);
  own->bins[Durations::BinOf(ns)].fetch_add(1, std::memory_order_relaxed);
}

void Slot::Add(const Durations& other) {
  Durations* const own = MadeDurations();
  if (own == nullptr) return;
  own->total_ns.fetch_add(other.total_ns, std::memory_order_relaxed);
  for (size_t bin = 0; bin < Durations::kBins; ++bin) own->bins[bin] += other.bins[bin];
}

uint64_t Histogram::Pack(const Call& call) {
  uint64_t key = 1;  // with the shifts below: no key is 0 or kClaimed
  for (const uint8_t member :
       {call.flags, call.function, call.type, call.algorithm, call.protocol, call.channels}) {
    key = key << kBits | member;
  }
  return key;
}

Call Histogram::Unpack(uint64_t key, uint64_t bytes) {
  Call call;
  call.bytes = bytes;
  for (uint8_t* const member :
       {&call.channels, &call.protocol, &call.algorithm, &call.type, &call.function, &call.flags}) {
    *member = static_cast<uint8_t>(key);
    key >>= kBits;
  }
  return call;
}

Slot* Histogram::AddTo(Slot* slots, size_t size, const Call& call, uint64_t count) {
  const uint64_t key = Pack(call);
  const uint64_t hash = Mixed(key, call.bytes);
  const size_t last = size / kBucket - 1;
  const std::array<Slot*, 2> choices = {slots + (hash & last) * kBucket,
                                        slots + (hash >> 32U & last) * kBucket};
  while (true) {
    Slot* free = nullptr;
    size_t most_free = 0;
    for (Slot* const bucket : choices) {
      Slot* first_free = nullptr;
      size_t number_free = 0;
      for (Slot* slot = bucket; slot != bucket + kBucket; ++slot) {
        const uint64_t found = slot->key.load(std::memory_order_acquire);
        if (found == key && slot->bytes.load(std::memory_order_relaxed) == call.bytes) {
          slot->count.fetch_add(count, std::memory_order_relaxed);
          return slot;
        }
        if (found != 0) continue;
        if (number_free++ == 0) first_free = slot;
      }
      if (number_free > most_free) {
        most_free = number_free;
        free = first_free;
      }
    }
    if (free == nullptr) return nullptr;
    // Another thread may take a slot for the same content: readers add up equal rows.
    uint64_t expected = 0;
    if (free->key.compare_exchange_strong(expected, kClaimed, std::memory_order_acq_rel)) {
      free->bytes.store(call.bytes, std::memory_order_relaxed);
      free->count.fetch_add(count, std::memory_order_relaxed);
      free->key.store(key, std::memory_order_release);
      return free;
    }
  }
}

Slot* Histogram::Add(const Call& call, uint64_t count, uint64_t total) {
  if (Slot* const slot = AddTo(exact_.data(), exact_.size(), call, count)) return slot;
  AddRounded({.flags = call.flags, .function = call.function, .bytes = std::bit_floor(call.bytes)},
             count, total);
  return nullptr;
}

void Histogram::AddRounded(const Call& call, uint64_t count, uint64_t total) {
  RoundedSlots* rounded = rounded_.load(std::memory_order_acquire);
  if (rounded == nullptr) {
    std::unique_ptr<RoundedSlots> made(new (std::nothrow) RoundedSlots());
    if (made != nullptr && rounded_.compare_exchange_strong(rounded, made.get())) {
      rounded = made.release();
    }
  }
  const Slot* const slot =
      rounded == nullptr ? nullptr : AddTo(rounded->slots.data(), kRoundedRows, call, count);
  if (slot == nullptr) {
    Lose(count, total);
  } else {
    const auto index = static_cast<size_t>(slot - rounded->slots.data());
    rounded->totals[index].fetch_add(total, std::memory_order_relaxed);
  }
}

void Histogram::Add(const Histogram& other) {
  other.ForEach([this](const Row& row) {
    if (row.rounded) {
      AddRounded(row.call, row.count, row.total);
      return;
    }
    Slot* const slot = Add(row.call, row.count, row.total);
    if (slot != nullptr && row.durations != nullptr) slot->Add(*row.durations);
  });
  Lose(other.lost_calls(), other.lost_bytes());
}

}  // namespace nccltune::profiler
