// SPDX-License-Identifier: Apache-2.0
//
// Builds the stream operations that carry messages through the channels.
#include "sendrecv/vccl/chunks.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv::vccl {
namespace {

using Kind = Operation::Kind;

Operation OnFlag(Kind kind, Flag* flag, uint64_t value) {
  return {.kind = kind, .flag = flag, .value = static_cast<uint32_t>(value)};
}

Operation Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  return {.kind = Kind::kCopy, .to = to, .from = from, .bytes = bytes};
}

}  // namespace

void EndWaits(SharedState& shared) {
  for (SharedState::Channel& channel : shared.channels) {
    const uint32_t value = channel.enqueued.load() + kFarAhead;
    channel.filled.store(value);
    channel.emptied.store(value);
  }
}

Channels::Channels(const VcclSettings& settings, SharedState& shared, Role role, DeviceAddress base)
    : shared_(shared),
      role_(role),
      slots_(settings.slots),
      chunks_(std::make_unique<ChunkSequence>(settings, base)) {}

Channels::~Channels() = default;

std::vector<std::vector<Operation>> Channels::NextMessage(DeviceAddress address, uint64_t bytes) {
  std::vector<std::vector<Operation>> by_channel;
  for (const BufferChunk& chunk : chunks_->NextMessage(bytes)) {
    by_channel.resize(chunk.channel + 1);
    std::vector<Operation>& operations = by_channel.back();
    SharedState::Channel& channel = shared_.channels[chunk.channel];
    channel.enqueued.store(static_cast<uint32_t>(chunk.number));
    const DeviceAddress in_message = address + chunk.offset;
    if (role_ == Role::kSender) {
      if (chunk.number > slots_) {
        operations.push_back(OnFlag(Kind::kWait, &channel.emptied, chunk.number - slots_));
      }
      operations.push_back(Copy(chunk.slot, in_message, chunk.bytes));
      operations.push_back(OnFlag(Kind::kWrite, &channel.filled, chunk.number));
    } else {
      operations.push_back(OnFlag(Kind::kWait, &channel.filled, chunk.number));
      operations.push_back(Copy(in_message, chunk.slot, chunk.bytes));
      operations.push_back(OnFlag(Kind::kWrite, &channel.emptied, chunk.number));
    }
  }
  return by_channel;
}

}  // namespace nccltune::sendrecv::vccl
