// SPDX-License-Identifier: Apache-2.0
//
// A buffer of the receiver's GPU that messages go through: in chunks, which the sender's copy
// engine puts into slots and the receiver takes out, by channels that go on side by side. The way
// of VCCL's send/recv without SMs (sii-research/VCCL, psm_p2p.cc), with its parameters free, as a
// policy to compare with.
#ifndef NCCLTUNE_SENDRECV_FIFO_H_
#define NCCLTUNE_SENDRECV_FIFO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

inline constexpr size_t kMostChannels = 8;

// Alike on both sides.
struct FifoSettings {
  uint64_t buffer = uint64_t{64} << 20;  // bytes of a channel
  uint64_t steps = 1;                    // slots that it is cut into
  uint64_t channels = 2;
  uint64_t chunk = 0;                    // bytes; 0: VCCL's table
  uint64_t least = uint64_t{512} << 10;  // bytes of a message that a channel has at least

  uint64_t room() const { return channels * buffer; }
};

// Bytes of the chunks of a message: at most a slot. VCCL's table is the buffer divided by 1, 2, 4,
// 8, 16, 32 and 64 for 32, 16, 8, 4, 2, 1 MiB and less, and by the steps.
uint64_t ChunkOf(const FifoSettings& settings, uint64_t bytes);

// Of one lane, as each side has it.
class Fifo {
 public:
  // `base`: where this side finds the buffer.
  Fifo(const FifoSettings& settings, DeviceAddress base) : settings_(settings), base_(base) {}

  struct Chunk {
    size_t channel = 0;
    uint64_t number = 0;   // on the channel, from 1
    DeviceAddress at = 0;  // its slot
    uint64_t offset = 0;   // in the message
    uint64_t bytes = 0;
  };
  // Of the next message; both sides take the same in the same order.
  std::vector<Chunk> Take(uint64_t bytes);

  const FifoSettings& settings() const { return settings_; }

 private:
  FifoSettings settings_;
  DeviceAddress base_;
  std::array<uint64_t, kMostChannels> numbers_ = {};
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_FIFO_H_
