// SPDX-License-Identifier: Apache-2.0
//
// Memory mapped by hand that a rank offers to others: spans of chunks side by side. Chunks come and
// go one by one, so every message asks whether those under it are still the same.
#ifndef NCCLTUNE_SENDRECV_SPANS_H_
#define NCCLTUNE_SENDRECV_SPANS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sendrecv/board.h"
#include "sendrecv/chunks.h"
#include "sendrecv/mailbox.h"

namespace nccltune::sendrecv {

// Not for several threads at once.
class Spans {
 public:
  // A message that is not over is in the share of that number.
  using InUse = std::function<bool(uint64_t number)>;

  // `mailbox`: null where there is none, and nothing is shared. `place`: ours.
  Spans(const CudaDriver& driver, Board& board, Mailbox* mailbox, size_t place)
      : chunks_(driver), board_(board), mailbox_(mailbox), place_(place) {}
  ~Spans();
  Spans(const Spans&) = delete;
  Spans& operator=(const Spans&) = delete;

  Found Find(DeviceAddress address, uint64_t bytes, size_t peer);
  // Finds spans that have lost a chunk: no message goes there any more.
  void Sweep();
  // Takes them back where peers have no more to do with them.
  void Tidy(const InUse& in_use);

 private:
  using Clock = std::chrono::steady_clock;
  // Of one peer.
  struct Delivery {
    size_t sent = 0;  // chunks
    Clock::time_point again;
  };
  struct Span {
    Share* share = nullptr;
    std::vector<Chunk> chunks;
    bool stale = false;
    std::map<size_t, Delivery> deliveries;  // by place

    DeviceAddress base() const { return chunks.front().base; }
    DeviceAddress end() const { return chunks.back().end(); }
  };

  Reach Walk(DeviceAddress address, uint64_t bytes);
  bool IsShareable(const Chunk& chunk);
  Span* Known();
  Span* Offer();
  void Grow(std::vector<Chunk>* chunks);
  bool Follows(const Chunk& last, uint64_t grown, const Chunk& next);
  void Deliver(Span* span, size_t peer);
  std::vector<Descriptor> Export(const Span& span, const Letter& letter);

  Chunks chunks_;
  Board& board_;
  Mailbox* mailbox_;
  size_t place_;
  std::vector<std::unique_ptr<Span>> spans_;
  std::vector<Chunk> under_;                 // the message
  std::map<DeviceAddress, Chunk> unshared_;  // that cannot be, so that each is asked once
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SPANS_H_
