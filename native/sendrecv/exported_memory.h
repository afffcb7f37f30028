// SPDX-License-Identifier: Apache-2.0
//
// Exports memory of this rank, so that peers can copy to or from it. Memory is exported when it
// first holds a message. The peer maps the memory at the peer's next call. Until then NCCL carries
// the messages in that memory.
#ifndef NCCLTUNE_SENDRECV_EXPORTED_MEMORY_H_
#define NCCLTUNE_SENDRECV_EXPORTED_MEMORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

#include "sendrecv/cuda_driver.h"
#include "sendrecv/export_table.h"
#include "sendrecv/mailbox.h"
#include "sendrecv/segment.h"
#include "sendrecv/spans.h"

namespace nccltune::sendrecv {

// The memory that one rank of a communicator exports. Not thread-safe.
class ExportedMemory {
 public:
  // If `mailbox` is null, only memory with legacy CUDA IPC handles is exported. `place` is the
  // index of this rank's record in the segment.
  ExportedMemory(const CudaDriver& driver, RankRecord& record, Mailbox* mailbox, size_t place)
      : driver_(driver), record_(record), table_(record), spans_(driver, table_, mailbox, place) {}
  // Withdraws all exported memory.
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
  // Withdraws spans (spans.h) that have changed and that no message uses. Do not call WithdrawStale
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

#endif  // NCCLTUNE_SENDRECV_EXPORTED_MEMORY_H_
