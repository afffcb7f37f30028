// SPDX-License-Identifier: Apache-2.0
//
// How messages went, and why NCCL carried those that it did. From any thread.
#ifndef NCCLTUNE_SENDRECV_COUNTS_H_
#define NCCLTUNE_SENDRECV_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune::sendrecv {

enum class Way : uint8_t {
  // By a copy engine.
  kPushed,
  kPulled,
  kStaged,
  kFifo,  // through a buffer of the receiver
  // By NCCL.
  kSmall,      // below the size from which on a copy engine is faster
  kElsewhere,  // to a rank of another host, or that is not able
  kFirst,      // of its lane: NCCL connects the two ranks
  kEager,      // sent before it is received, and small enough for NCCL's buffers
  kPeer,       // the peer decided
  kCaptured,   // of a graph, or behind one
  kUnshared,   // memory without a handle
  kNoMemory,   // no allocation of this process on the GPU
  kNotYet,     // the peer has not mapped the memory yet
  kRefused,    // the peer could not map it
  kNoRoom,     // too many allocations
  kDry,        // a dry run: a copy engine would have had it
  // Beside one of these.
  kChecked,  // its contents were compared
  kCount,
};

// "copy engine, pushed".
std::string_view WordsOf(Way way);

class Counts {
 public:
  struct Both {
    uint64_t messages = 0;
    uint64_t bytes = 0;
  };

  void Add(Way way, uint64_t bytes, uint64_t messages = 1) {
    Counter& counter = counters_[static_cast<size_t>(way)];
    counter.messages.fetch_add(messages, std::memory_order_relaxed);
    counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  Both Of(Way way) const;

  // A line for each way that was taken; empty: none was.
  std::string Words() const;

 private:
  struct Counter {
    std::atomic<uint64_t> messages = 0;
    std::atomic<uint64_t> bytes = 0;
  };
  std::array<Counter, static_cast<size_t>(Way::kCount)> counters_;
};

// Of the process, as long as it lives.
inline Counts& TheCounts() {
  constinit static Counts counts;
  return counts;
}

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_COUNTS_H_
