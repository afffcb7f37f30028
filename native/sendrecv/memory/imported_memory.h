// SPDX-License-Identifier: Apache-2.0
// Maps memory that a peer exports (exported_memory.h) into this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/peers/mailbox.h"
#include "sendrecv/peers/segment.h"

namespace nccltune::sendrecv {

// The imported memory of one peer. Not thread-safe.
class ImportedMemory {
 public:
  enum class Kind : uint8_t {
    kByHandle,  // the peer is in another process
    // The peer is in this process, so its addresses are valid here. Only chunks of cuMemMap
    // (mapped_chunks.h) are mapped again.
    kDirect,
    kNone,  // this rank's GPU cannot reach the peer's memory
  };
  // `place` and `from` are this rank's and the peer's place in the segment. `inbox` receives the
  // peer's chunks (mapped_chunks.h). `inbox` is null if the system refused the socket.
  ImportedMemory(const CudaDriver& driver, RankRecord& peer, size_t place, Kind kind, Inbox* inbox,
                 size_t from)
      : driver_(driver), peer_(peer), place_(place), kind_(kind), inbox_(inbox), from_(from) {}
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  // Maps newly exported memory and unmaps memory that the peer has withdrawn. Closing a legacy
  // handle waits for all work of the GPU (driver 580). That work may wait for the caller's next
  // operation. So handles of withdrawn memory stay open until CloseWithdrawn. If such handles hold
  // over 1 GiB, they are closed once `is_idle` returns true. Until then no other memory of the peer
  // is mapped.
  void Update(const std::function<bool()>& is_idle);
  // Unmaps withdrawn memory, but maps nothing. Returns whether handles wait for CloseWithdrawn.
  bool UnmapWithdrawn();
  // Closes the handles of withdrawn memory. No work of the GPU may wait for a peer.
  void CloseWithdrawn();
  // Returns the address of `bytes` bytes of an exported entry, or 0 if not all of them are mapped.
  DeviceAddress Resolve(uint64_t number, uint64_t offset, uint64_t bytes) const;

 private:
  struct Mapping {
    DeviceAddress base = 0;
    uint64_t bytes = 0;
    bool chunked = false;  // mapped from chunks, not by a legacy handle
  };
  enum class MapResult : uint8_t { kMapped, kRefused, kNotDelivered };

  MapResult Map(const ExportEntry& entry, uint64_t number, Mapping* mapping);
  MapResult MapChunks(size_t count, uint64_t number, Mapping* mapping);
  void Unmap(const Mapping& mapping);
  void UnmapLater(const Mapping& mapping);
  // Closes the deferred handles if they hold over 1 GiB and `is_idle` returns true. Returns whether
  // more memory may be mapped.
  bool MakeRoom(const std::function<bool()>& is_idle);

  const CudaDriver& driver_;
  RankRecord& peer_;
  size_t place_;
  Kind kind_;
  Inbox* inbox_;
  size_t from_;
  uint64_t seen_changes_ = 0;             // last seen value of RankRecord::exports_changed
  uint64_t seen_withdrawals_ = 0;         // the same, by UnmapWithdrawn
  std::map<uint64_t, Mapping> mappings_;  // by number of the exported entry
  std::vector<Mapping> deferred_;         // withdrawn by the peer, still to be unmapped
  uint64_t deferred_bytes_ = 0;
};

}  // namespace nccltune::sendrecv
