// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/log.h"
#include "sendrecv/memory/exported_memory.h"
#include "sendrecv/memory/imported_memory.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv::vccl {

LaneBuffer::LaneBuffer(const VcclSettings& settings, SharedState& shared, Role role,
                       const Memory& memory, int peer, size_t place)
    : settings_(settings),
      shared_(shared),
      role_(role),
      memory_(memory),
      peer_(peer),
      place_(place) {}

LaneBuffer::~LaneBuffer() = default;

ExportLookup LaneBuffer::Find() {
  return role_ == Role::kSender ? FindOfSender() : FindOfReceiver();
}

ExportLookup LaneBuffer::FindOfSender() {
  const uint64_t number = shared_.buffer.load();
  const DeviceAddress base = memory_.imported.Resolve(number, 0, settings_.lane_bytes());
  if (base == 0) return {.status = ExportStatus::kPending};
  if (channels_ == nullptr) {
    channels_ = std::make_unique<Channels>(settings_, shared_, role_, base);
  }
  return {.status = ExportStatus::kMapped, .number = number, .offset = 0};
}

ExportLookup LaneBuffer::FindOfReceiver() {
  const uint64_t bytes = settings_.lane_bytes();
  if (channels_ == nullptr && !refused_) {
    allocated_ = memory_.driver.Allocate(bytes);
    refused_ = allocated_ == 0;
    if (refused_) {
      Warn("cannot allocate a buffer of " + std::to_string(bytes) +
           " bytes: NCCL carries all messages received from rank " + std::to_string(peer_));
    } else {
      channels_ = std::make_unique<Channels>(settings_, shared_, role_, allocated_);
    }
  }
  if (refused_) return {.status = ExportStatus::kNoMemory};
  const ExportLookup found = memory_.exported.Find(allocated_, bytes, place_);
  if (found.status == ExportStatus::kPending || found.status == ExportStatus::kMapped) {
    shared_.buffer.store(found.number);
  }
  return found;
}

void LaneBuffer::Free() {
  if (allocated_ != 0) memory_.driver.Free(allocated_);
  allocated_ = 0;
  channels_.reset();
}

}  // namespace nccltune::sendrecv::vccl
