// SPDX-License-Identifier: Apache-2.0
#include "net/net_settings.h"

#include <optional>
#include <string_view>

#include "common/settings.h"

namespace nccltune::net {

NetSettings ReadNetSettings(std::vector<std::string>* warnings) {
  NetSettings settings;
  // For "auto", ReadNumber returns nothing and the default is used.
  settings.flows = static_cast<int>(ReadNumber(SettingId::kNetFlows, warnings).value_or(0));
  settings.threads = static_cast<int>(ReadNumber(SettingId::kNetThreads, warnings).value_or(0));
  settings.eager_bytes = ReadNumber(SettingId::kNetEager, warnings).value_or(settings.eager_bytes);
  settings.devices = static_cast<int>(ReadNumber(SettingId::kNetDevices, warnings).value_or(0));
  const auto timeout = ReadNumber(SettingId::kNetTimeout, warnings);
  if (timeout) settings.timeout_s = static_cast<int>(*timeout);
  if (const auto ports = ReadRange(SettingId::kNetPorts, warnings)) {
    settings.ports.first = static_cast<uint16_t>(ports->first);
    settings.ports.last = static_cast<uint16_t>(ports->last);
  }
  settings.open_files = ReadNumber(SettingId::kNetNofile, warnings).value_or(settings.open_files);
  const std::string_view zero_copy = ReadWord(SettingId::kNetZeroCopy, warnings);
  if (zero_copy == "0") settings.zero_copy = ZeroCopyMode::kOff;
  if (zero_copy == "1") settings.zero_copy = ZeroCopyMode::kAlways;
  return settings;
}

}  // namespace nccltune::net
