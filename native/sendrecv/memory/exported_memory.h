// SPDX-License-Identifier: Apache-2.0
// Exports memory of this rank, so that peers can copy to or from it. Memory is exported when it
// first holds a message. The peer maps the memory at the peer's next call. Until then NCCL carries
// the messages in that memory.
//
// Memory that was mapped with cuMemMap consists of chunks. A chunk is one such mapping. A span is a
// run of adjacent chunks that are exported together. The application can unmap and replace single
// chunks, so the chunks under each message are checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/cuda/mapped_chunks.h"
#include "sendrecv/peers/mailbox.h"
#include "sendrecv/peers/segment.h"

namespace nccltune::sendrecv {

// The spans that a rank exports. Not thread-safe.
class Spans {
 public:
  // Returns whether an incomplete message uses the exported entry of that number.
  using InUse = std::function<bool(uint64_t number)>;

  // If `mailbox` is null, or a peer has none, Find returns kUnshareable. `place` is this
  // rank's place in the segment.
  Spans(const CudaDriver& driver, ExportTable& table, Mailbox* mailbox, size_t place)
      : chunks_(driver), table_(table), mailbox_(mailbox), place_(place) {}
  ~Spans();
  Spans(const Spans&) = delete;
  Spans& operator=(const Spans&) = delete;

  // Exports the span that contains a message, if that is not done yet. Returns the state of the
  // span, for example whether the peer has mapped the span.
  ExportLookup Find(DeviceAddress address, uint64_t bytes, size_t peer);
  // Marks each span of which a chunk was unmapped or replaced. New messages do not use a marked
  // span.
  void MarkStale();
  // Withdraws the marked spans that no message uses.
  void WithdrawStale(const InUse& in_use);

 private:
  using Clock = std::chrono::steady_clock;
  // How many chunks of a span were sent to one peer.
  struct ChunkDelivery {
    size_t sent = 0;  // number of chunks
    Clock::time_point retry_after;
  };
  struct Span {
    ExportEntry* entry = nullptr;
    std::vector<MappedChunk> chunks;
    bool stale = false;
    std::map<size_t, ChunkDelivery> deliveries;  // by the peer's place

    DeviceAddress base() const { return chunks.front().base; }
    DeviceAddress end() const { return chunks.back().end(); }
  };

  ExportStatus FindMessageChunks(DeviceAddress address, uint64_t bytes);
  bool IsShareable(const MappedChunk& chunk);
  Span* FindCurrentSpan();
  Span* Export();
  void Grow(std::vector<MappedChunk>* chunks);
  bool MayExtend(const MappedChunk& last, uint64_t grown, const MappedChunk& next);
  void Deliver(Span* span, size_t peer);
  std::vector<Descriptor> Export(const Span& span, const ChunkMessage& datagram);

  MappedChunks chunks_;
  ExportTable& table_;
  Mailbox* mailbox_;
  size_t place_;
  std::vector<std::unique_ptr<Span>> spans_;
  std::vector<MappedChunk> message_chunks_;  // the chunks under the present message
  // Chunks that cannot be shared, by address. This saves asking CUDA at each message.
  std::map<DeviceAddress, MappedChunk> unshareable_;
};

// The memory that one rank of a communicator exports. Not thread-safe.
class ExportedMemory {
 public:
  // If `mailbox` is null, only memory with legacy CUDA IPC handles is exported. `place` is the
  // index of this rank's record in the segment.
  ExportedMemory(const CudaDriver& driver, RankRecord& record, Mailbox* mailbox, size_t place)
      : driver_(driver), record_(record), table_(record), spans_(driver, table_, mailbox, place) {}
  ~ExportedMemory();
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  // Exports the memory of a message to a peer, if that is not done yet. Returns the state of the
  // memory, for example whether the peer has mapped the memory. `peer` is the peer's place in the
  // segment.
  ExportLookup Find(DeviceAddress address, uint64_t bytes, size_t peer);

  // Withdraws allocations that the application has freed. Until then peers keep the memory mapped.
  void WithdrawFreed();
  // Calls WithdrawFreed if the last check is over a second old. Find does this as well.
  void CheckFreed();
  // Withdraws spans that have changed and that no message uses. Do not call WithdrawStale
  // between Find and LaneEnd::Post of a message.
  void WithdrawStale(const Spans::InUse& in_use) { spans_.WithdrawStale(in_use); }

 private:
  struct KnownAllocation {
    Allocation allocation;
    size_t index = 0;
  };
  ExportEntry* Export(const Allocation& allocation);
  void Withdraw(const KnownAllocation& known);

  const CudaDriver& driver_;
  RankRecord& record_;
  std::map<cu::Pointer, KnownAllocation> known_;  // by base address
  ExportTable table_;
  Spans spans_;
  std::chrono::steady_clock::time_point checked_;
};

}  // namespace nccltune::sendrecv
