// SPDX-License-Identifier: Apache-2.0
// Counts messages by route: how a copy engine carried them, or why NCCL carried them. Thread-safe.
#ifndef NCCLTUNE_SENDRECV_COUNTS_H_
#define NCCLTUNE_SENDRECV_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune::sendrecv {

enum class Route : uint8_t {
  // Carried by a copy engine.
  kPushed,
  kPulled,
  kStaged,
  kBuffered,  // through a buffer of the receiver
  // Carried by NCCL.
  kSmall,      // below the size from which copy engines are used
  kElsewhere,  // the peer is on another host, or one of the two ranks cannot use copy engines
  kFirst,      // the first message from one rank to another: with it NCCL connects the two
  kFull,       // no free slot for it in the memory that the two ranks share
  kEager,      // a send that must not wait for its receive, and no staging memory was usable
  kEarly,      // received before it was sent, and only receivers copy
  kGaveWay,    // an earlier message held up others, and streams wait by kernels
  kPeer,       // the peer decided that NCCL carries it
  kCaptured,   // captured in a CUDA graph, or after a captured message
  kEnded,      // the peer's application has ended the communicator
  kUnshared,   // the memory cannot be shared with other processes
  kNoMemory,   // not GPU memory of this process, or in several allocations
  kNotYet,     // the peer has not mapped the memory yet
  kRefused,    // the peer could not map the memory
  kNoRoom,     // the table of exported memory is full
  kForeign,    // the stream belongs to another context than the communicator
  kOff,        // the operator has switched the library off
  kDry,        // dry run: a copy engine would have carried it
  // Counted in addition to one of the routes above.
  kChecked,  // the contents were compared
  kCount,
};

// Returns a text such as "copy engine, pushed".
std::string_view DescribeRoute(Route route);

class Counts {
 public:
  struct Total {
    uint64_t messages = 0;
    uint64_t bytes = 0;
  };

  void Add(Route route, uint64_t bytes, uint64_t messages = 1) {
    Counter& counter = counters_[static_cast<size_t>(route)];
    counter.messages.fetch_add(messages, std::memory_order_relaxed);
    counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  Total Get(Route route) const;

  // Returns one line for each route that was used, or an empty text if none was. `separator` ends
  // each line.
  std::string Report(std::string_view separator = "\n") const;

 private:
  struct Counter {
    std::atomic<uint64_t> messages = 0;
    std::atomic<uint64_t> bytes = 0;
  };
  std::array<Counter, static_cast<size_t>(Route::kCount)> counters_;
};

// The counters of the process. They are never destroyed.
inline Counts& ProcessCounts() {
  constinit static Counts counts;
  return counts;
}

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_COUNTS_H_
