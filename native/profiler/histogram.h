// SPDX-License-Identifier: Apache-2.0
//
// Counts the calls of one communicator by their content. Any number of threads may add calls
// without a lock. Memory is bounded: when there is no place for another size, it is rounded down to
// a power of two, and when there is no place for that, the call is lost and counted as lost.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace nccltune::profiler {

// The words that NCCL passes, such as "AllReduce" or "ncclFloat32", by small numbers. 0 stands for
// no word or an empty one, kOther for words after the table was full.
class WordTable {
 public:
  static constexpr uint8_t kOther = 63;

  // Returns the number of a word. A null pointer has number 0.
  uint8_t NumberOf(const char* word);

  const char* Word(uint8_t number) const { return words_[number].text.data(); }
  // Returns the bytes of an element, if the word is the name of a type (the first number in it are
  // its bits); else 0.
  uint8_t TypeBytes(uint8_t number) const { return words_[number].type_bytes; }

 private:
  struct Entry {
    std::array<char, 31> text;
    uint8_t type_bytes;
  };

  uint8_t Search(const char* word, size_t count) const;

  std::array<Entry, kOther + 1> words_{};
  std::atomic<size_t> count_ = 1;  // entries 1 to count_ - 1 do not change any more
  std::mutex mutex_;               // of additions
  // The numbers of the newest words by their address, because NCCL passes the same constants again:
  // address << 8 | number. A wrong entry is harmless, because the text is compared.
  std::array<std::atomic<uint64_t>, 64> cache_{};
};

// What a row counts: a call of the program, or a task that NCCL started for one. NCCL 2.27 reports
// no calls. A call may have no task that is reported (a broadcast since 2.29, a copy engine
// in 2.28), and a task may run again (a CUDA graph with network operations).
inline constexpr uint8_t kTask = 1;
inline constexpr uint8_t kCaptured = 2;    // a call that was captured into a CUDA graph
inline constexpr uint8_t kSymmetric = 4;   // a task that ran a symmetric kernel
inline constexpr uint8_t kCopyEngine = 8;  // a task that ran on copy engines

struct Call {
  uint8_t flags = 0;
  uint8_t function = 0;  // this and the next three: numbers of a WordTable
  uint8_t type = 0;
  uint8_t algorithm = 0;
  uint8_t protocol = 0;
  uint8_t channels = 0;
  uint64_t bytes = 0;  // count * size of the type
};

// What NCCL passes of such a call or task. Words are its constants, or null.
struct Event {
  size_t count = 0;
  const char* function = nullptr;
  const char* type = nullptr;
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  uint8_t flags = 0;
  uint8_t channels = 0;

  // Compares words by their addresses.
  bool operator==(const Event&) const = default;
};

// The durations of timed tasks that are alike: their sum, and how many each bin has. Any number of
// threads may add some while others read.
struct Durations {
  // Four bins for each power of two: bin b begins at (4 + b % 4) << (b / 4 + 7) ns, the first at
  // 512. The first has all shorter durations too, and the last all from 7.5 s on.
  static constexpr size_t kBins = 96;
  static constexpr size_t BinOf(uint64_t ns) {
    const auto width = static_cast<unsigned>(std::bit_width(ns | 512U));
    return ns < 512 ? 0 : std::min(size_t{width - 10} * 4 + (ns >> (width - 3) & 3U), kBins - 1);
  }

  std::atomic<uint64_t> total_ns = 0;
  std::array<std::atomic<uint32_t>, kBins> bins{};
};

// A row while it is counted.
struct Slot {
  Slot() = default;
  ~Slot() { delete durations.load(std::memory_order_acquire); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void AddDuration(uint64_t ns);
  void Add(const Durations& other);

  std::atomic<uint64_t> key = 0;  // 0: free; kClaimed: `bytes` is being written
  std::atomic<uint64_t> bytes = 0;
  std::atomic<uint64_t> count = 0;
  std::atomic<Durations*> durations = nullptr;  // made when they are needed

 private:
  Durations* MadeDurations();  // null without memory
};

// The rows of earlier events of one communicator: no text is read for an event that is like one
// of them. An entry is made once and not changed any more, so that any number of threads may use
// it; a CUDA graph reports its tasks in a thread of the driver. NCCL's words are constants, which
// stay where they are as long as its communicators.
class KnownEvents {
 public:
  // Returns the row of such events; null if it is not known.
  Slot* Find(const Event& event) const {
    for (size_t place = Place(event), end = place + kTries; place != end; ++place) {
      const Entry& entry = entries_[place];
      Slot* const row = entry.row.load(std::memory_order_acquire);
      if (row == nullptr || entry.event == event) return row;
    }
    return nullptr;
  }

  // Makes an event known, if there is a free entry.
  void Keep(const Event& event, Slot* row) {
    for (size_t place = Place(event), end = place + kTries; place != end; ++place) {
      Entry& entry = entries_[place];
      if (entry.is_claimed.load(std::memory_order_relaxed) || entry.is_claimed.exchange(true)) {
        continue;
      }
      entry.event = event;
      entry.row.store(row, std::memory_order_release);
      return;
    }
  }

 private:
  struct alignas(64) Entry {
    std::atomic<Slot*> row = nullptr;  // null: `event` may be being written
    Event event;
    std::atomic<bool> is_claimed = false;
  };
  static constexpr size_t kTries = 3;

  static size_t Place(const Event& event) {
    uint64_t hash = event.count << 16U | event.flags << 8U | event.channels;
    for (const char* const word : {event.function, event.type, event.algorithm, event.protocol}) {
      hash = std::rotl(hash, 13) ^ reinterpret_cast<uint64_t>(word);
    }
    return hash * 0x9e3779b97f4a7c15ULL >> 57U;
  }

  std::array<Entry, 128 + kTries - 1> entries_;
};

struct Row {
  Call call;
  bool rounded;  // call.bytes is the power of two; type, algorithm, protocol, channels are unknown
  uint64_t count;              // of calls
  uint64_t total;              // bytes of all of them
  const Durations* durations;  // null: none was timed
};

class Histogram {
 public:
  static constexpr size_t kExactRows = 256;
  static constexpr size_t kRoundedRows = 128;

  Histogram() = default;
  ~Histogram() { delete rounded_.load(std::memory_order_acquire); }
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  // Returns the row of such calls, to which more may be added; null if they have none of their own.
  Slot* Add(const Call& call) { return Add(call, 1, call.bytes); }
  // Adds the calls that `other` has now.
  void Add(const Histogram& other);

  // Calls `use` with each row.
  template <typename Use>
  void ForEach(const Use& use) const {
    for (const Slot& slot : exact_) UseSlot(slot, nullptr, use);
    const RoundedSlots* const rounded = rounded_.load(std::memory_order_acquire);
    for (size_t i = 0; rounded != nullptr && i < kRoundedRows; ++i) {
      UseSlot(rounded->slots[i], &rounded->totals[i], use);
    }
  }

  uint64_t lost_calls() const { return lost_calls_.load(std::memory_order_relaxed); }
  uint64_t lost_bytes() const { return lost_bytes_.load(std::memory_order_relaxed); }
  void Lose(uint64_t calls, uint64_t bytes) {
    lost_calls_.fetch_add(calls, std::memory_order_relaxed);
    lost_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  struct RoundedSlots {
    std::array<Slot, kRoundedRows> slots;
    std::array<std::atomic<uint64_t>, kRoundedRows> totals{};  // bytes
  };
  static constexpr uint64_t kClaimed = 1;

  Slot* Add(const Call& call, uint64_t count, uint64_t total);
  void AddRounded(const Call& call, uint64_t count, uint64_t total);
  // Returns the slot of a call after adding to it; null if there is no place.
  static Slot* AddTo(Slot* slots, size_t size, const Call& call, uint64_t count);
  static uint64_t Pack(const Call& call);
  static Call Unpack(uint64_t key, uint64_t bytes);

  template <typename Use>
  static void UseSlot(const Slot& slot, const std::atomic<uint64_t>* total, const Use& use) {
    const uint64_t key = slot.key.load(std::memory_order_acquire);
    const uint64_t count = slot.count.load(std::memory_order_relaxed);
    if (key == 0 || key == kClaimed || count == 0) return;
    const Call call = Unpack(key, slot.bytes.load(std::memory_order_relaxed));
    const bool rounded = total != nullptr;
    use(Row{call, rounded, count,
            rounded ? total->load(std::memory_order_relaxed) : call.bytes * count,
            slot.durations.load(std::memory_order_acquire)});
  }

  std::array<Slot, kExactRows> exact_;
  std::atomic<RoundedSlots*> rounded_ = nullptr;  // made when it is needed
  std::atomic<uint64_t> lost_calls_ = 0;
  std::atomic<uint64_t> lost_bytes_ = 0;
};

}  // namespace nccltune::profiler
