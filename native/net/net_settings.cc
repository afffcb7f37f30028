// SPDX-License-Identifier: Apache-2.0
#include "net/net_settings.h"

#include <algorithm>
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
  const int path_timeout_s = settings.timeout_s == 0
                                 ? kPathTimeoutMs / 1000
                                 : std::clamp(settings.timeout_s / 10, 1, kPathTimeoutMs / 1000);
  settings.path_timeout_ms =
      1000 *
      static_cast<int>(ReadNumber(SettingId::kNetPathTimeout, warnings).value_or(path_timeout_s));
  settings.down_timeout_s = static_cast<int>(
      ReadNumber(SettingId::kNetDownTimeout, warnings).value_or(settings.timeout_s));
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
