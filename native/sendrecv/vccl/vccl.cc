// SPDX-License-Identifier: Apache-2.0
// Builds the stream operations that carry messages through the channels.
#include "sendrecv/vccl/vccl.h"

#include <algorithm>

#include "common/settings.h"

namespace nccltune::sendrecv::vccl {
namespace {

using Kind = Operation::Kind;

Operation OnFlag(Kind kind, Flag* flag, uint64_t value) {
  return {.kind = kind, .flag = flag, .value = static_cast<uint32_t>(value)};
}

Operation Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  return {.kind = Kind::kCopy, .to = to, .from = from, .bytes = bytes};
}

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Each channel's part of a message begins at a multiple of this.
constexpr uint64_t kAlignment = 512;

constexpr uint64_t RoundedUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

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

uint64_t ChunkBytes(const VcclSettings& settings, uint64_t bytes) {
  const uint64_t slot = settings.channel_bytes / settings.slots;
  if (settings.chunk_bytes != 0) return std::min(settings.chunk_bytes, slot);
  uint64_t divisor = 1;
  for (uint64_t from = 32 * kMiB; divisor < 64 && bytes < from; from /= 2) divisor *= 2;
  return settings.channel_bytes / divisor / settings.slots;
}

std::vector<BufferChunk> ChunkSequence::NextMessage(uint64_t bytes) {
  const uint64_t most = std::max<uint64_t>(1, bytes / settings_.min_channel_bytes);
  const uint64_t channels = std::min(settings_.channels, most);
  const uint64_t part = RoundedUp((bytes + channels - 1) / channels, kAlignment);
  const uint64_t chunk = ChunkBytes(settings_, bytes);
  const uint64_t slot = settings_.channel_bytes / settings_.slots;
  std::vector<BufferChunk> chunks;
  for (size_t channel = 0; channel < channels; ++channel) {
    const uint64_t end = std::min(bytes, (channel + 1) * part);
    for (uint64_t offset = channel * part; offset < end; offset += chunk) {
      const uint64_t number = ++numbers_[channel];
      chunks.push_back(
          {.channel = channel,
           .number = number,
           .slot = base_ + channel * settings_.channel_bytes + number % settings_.slots * slot,
           .offset = offset,
           .bytes = std::min(chunk, end - offset)});
    }
  }
  return chunks;
}

VcclSettings ReadSettings(std::vector<std::string>* problems) {
  VcclSettings settings;
  const auto read = [&](SettingId id, uint64_t* value) {
    *value = ReadNumber(id, problems).value_or(*value);
  };
  read(SettingId::kSendrecvBuffer, &settings.channel_bytes);
  read(SettingId::kSendrecvSteps, &settings.slots);
  read(SettingId::kSendrecvChannels, &settings.channels);
  read(SettingId::kSendrecvChunk, &settings.chunk_bytes);
  return settings;
}

std::string SharedSettingsText(const VcclSettings& settings) {
  std::string text;
  for (const uint64_t number :
       {settings.channel_bytes, settings.slots, settings.channels, settings.chunk_bytes}) {
    text += " " + std::to_string(number);
  }
  return text;
}

}  // namespace nccltune::sendrecv::vccl
