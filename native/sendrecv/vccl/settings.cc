// SPDX-License-Identifier: Apache-2.0
#include "common/settings.h"

#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv::vccl {

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
