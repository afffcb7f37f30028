// SPDX-License-Identifier: Apache-2.0
// The `vccl` policy (NCCLTUNE_SENDRECV_POLICY=vccl): messages go in chunks through a buffer in the
// receiver's GPU memory. The sender's copy engine fills slots of the buffer and the receiver's copy
// engine empties them, on several channels at once. This is the method of VCCL's send/recv without
// SMs (sii-research/VCCL, psm_p2p.cc), with adjustable parameters. It exists to be compared with
// the `copy` policy, which copies directly between the messages' memory. A lane carries the
// messages from one rank to another (message_lane.h).
//
// The rest of the library uses this header alone:
//   options.cc       ReadSettings
//   communicator.cc  LaneBuffer: allocates, exports and maps the buffer of a lane
//   message_lane.h   SharedState: its part of a lane's shared memory
//   group.cc         Channels: the operations of a message; plan.cc gives each channel a stream
// route.cc decides which messages go this way: all that a copy engine may carry.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sendrecv/cuda/driver.h"
#include "sendrecv/lane/gate.h"

namespace nccltune::sendrecv {
class CudaDriver;
class ImportedMemory;
class ExportedMemory;
struct ExportLookup;
}  // namespace nccltune::sendrecv

namespace nccltune::sendrecv::vccl {

inline constexpr size_t kMaxChannels = 8;

// The settings of the policy. They must be equal on both sides.
struct VcclSettings {
  uint64_t channel_bytes = uint64_t{64} << 20;  // bytes of the buffer for each channel
  uint64_t slots = 1;                           // number of slots of a channel's buffer
  uint64_t channels = 2;
  uint64_t chunk_bytes = 0;  // 0 selects VCCL's table: see ChunkBytes
  // A message uses one channel for each of this many bytes, but at most `channels`.
  uint64_t min_channel_bytes = uint64_t{1} << 19;

  uint64_t lane_bytes() const { return channels * channel_bytes; }
};

VcclSettings ReadSettings(std::vector<std::string>* problems);
// Returns the settings that must be equal on both sides, as a text.
std::string SharedSettingsText(const VcclSettings& settings);

// The policy's part of a lane's shared memory. It is all zero at first.
struct SharedState {
  // The number of the buffer in the receiver's export table, or 0 if the buffer is not exported
  // yet.
  alignas(64) std::atomic<uint64_t> buffer = 0;
  // One channel. `filled` is the number of chunks that the sender has copied into the buffer,
  // `emptied` the number of chunks that the receiver has copied out of the buffer.
  struct Channel {
    alignas(64) Flag filled = 0;
    alignas(64) Flag emptied = 0;
    std::atomic<uint32_t> enqueued = 0;  // the last chunk that either side has enqueued
  };
  std::array<Channel, kMaxChannels> channels;
};

// Ends all waits for chunks. A peer that is still running overwrites the flags, so call this
// repeatedly.
void EndWaits(SharedState& shared);

// Returns the chunk size for a message: `chunk_bytes`, but at most a slot. If `chunk_bytes` is 0,
// returns the size in VCCL's table. The table divides a channel's buffer by a divisor and by the
// number of slots. The divisor is 1 from 32 MiB on, 2 from 16, 4 from 8, 8 from 4, 16 from 2, 32
// from 1 MiB, and 64 below.
uint64_t ChunkBytes(const VcclSettings& settings, uint64_t bytes);

struct BufferChunk {
  size_t channel = 0;
  uint64_t number = 0;     // number of the chunk on its channel, from 1
  DeviceAddress slot = 0;  // address in the buffer
  uint64_t offset = 0;     // offset in the message
  uint64_t bytes = 0;
};

// Numbers the chunks of a lane's messages, on one side.
class ChunkSequence {
 public:
  ChunkSequence(const VcclSettings& settings, DeviceAddress base)
      : settings_(settings), base_(base) {}

  // Returns the chunks of the next message, in the order of channel and offset.
  std::vector<BufferChunk> NextMessage(uint64_t bytes);

 private:
  VcclSettings settings_;
  DeviceAddress base_;
  std::array<uint64_t, kMaxChannels> numbers_ = {};
};

// One side of the channels of a lane.
class Channels {
 public:
  // `base` is the address of the buffer on this side.
  Channels(const VcclSettings& settings, SharedState& shared, Role role, DeviceAddress base);
  ~Channels();

  // Returns the operations of the next message, one list for each channel. Each channel has one
  // stream, so that its chunks stay in order. Both sides must call NextMessage for the same
  // messages in the same order.
  std::vector<std::vector<Operation>> NextMessage(DeviceAddress address, uint64_t bytes);

 private:
  SharedState& shared_;
  Role role_;
  uint64_t slots_;
  std::unique_ptr<ChunkSequence> chunks_;
};

// The memory of a lane's buffer, on one side.
class LaneBuffer {
 public:
  struct Memory {
    CudaDriver& driver;
    ExportedMemory& exported;        // used by the receiver
    const ImportedMemory& imported;  // used by the sender
  };
  // `peer` is the peer's rank, and `place` the peer's place in the segment.
  LaneBuffer(const VcclSettings& settings, SharedState& shared, Role role, const Memory& memory,
             int peer, size_t place);
  ~LaneBuffer();
  LaneBuffer(const LaneBuffer&) = delete;
  LaneBuffer& operator=(const LaneBuffer&) = delete;

  // Returns the state and the address of the buffer, like ExportedMemory::Find. The receiver
  // allocates the buffer at the first call.
  ExportLookup Find();
  // Returns null until Find has returned ExportStatus::kMapped.
  Channels* channels() { return channels_.get(); }
  // Frees the memory. No operation may use it any more.
  void Free();

 private:
  ExportLookup FindOfReceiver();
  ExportLookup FindOfSender();

  const VcclSettings settings_;
  SharedState& shared_;
  Role role_;
  Memory memory_;
  int peer_;
  size_t place_;
  DeviceAddress allocated_ = 0;
  bool refused_ = false;  // the allocation has failed
  std::unique_ptr<Channels> channels_;
};

}  // namespace nccltune::sendrecv::vccl
