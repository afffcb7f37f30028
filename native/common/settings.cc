// SPDX-License-Identifier: Apache-2.0
#include "common/settings.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "common/text.h"

namespace nccltune {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kSwitchWords = {"0"sv, "1"sv};
constexpr std::array kStaleWords = {"warn"sv, "off"sv};

constexpr std::array<Setting, 6> kSettings = {{
    {"NCCLTUNE_CONFIG", "path", "", "Configuration of the tuner plugin.", {}},
    {"NCCL_TUNER_CONFIG_FILE",
     "path",
     "",
     "Read when NCCLTUNE_CONFIG is not set; the variable of NVIDIA's example plugin.",
     {}},
    {"NCCLTUNE_STRICT", "0|1", "0", "1: a configuration with any bad line gives no rules at all.",
     kSwitchWords},
    {"NCCLTUNE_STALE", "warn|off", "warn",
     "What to do with rules measured on another NCCL version or GPU. warn: say so and use them; "
     "off: say so and use none.",
     kStaleWords},
    {"NCCLTUNE_NATIVE_DIR",
     "path",
     "",
     "Where the Python side looks for nccltune's shared objects and programs; not read by the "
     "plugin.",
     {}},
    {"NCCLTUNE_TOKEN",
     "text",
     "",
     "32 hexadecimal digits that the processes of one nccltune-bench share; not read by the "
     "plugin.",
     {}},
}};

const Setting& Of(SettingId id) { return kSettings[static_cast<size_t>(id)]; }

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

std::string ReadPath(SettingId id) {
  const char* const value = std::getenv(Of(id).name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string_view ReadWord(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const char* const value = std::getenv(setting.name);
  if (value == nullptr) return setting.default_value;
  const std::string_view word = Trimmed(value);
  if (word.empty()) return setting.default_value;
  for (const std::string_view valid : setting.valid) {
    if (valid == word) return valid;
  }
  std::string warning = std::string(setting.name) + "=" + Quoted(word) + " is not one of " +
                        Listed(setting.valid) + "; ";
  const std::string_view nearest = Nearest(setting.valid, word);
  if (!nearest.empty()) warning += "did you mean " + Quoted(nearest) + "? ";
  warnings->push_back(warning + "taking " + std::string(setting.default_value));
  return setting.default_value;
}

std::vector<std::string> UnknownSettings() {
  constexpr std::string_view kPrefix = "NCCLTUNE_";
  std::vector<std::string_view> names;
  names.reserve(kSettings.size());
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  std::vector<std::string> warnings;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || NumberOf(names, name).has_value()) continue;
    std::string warning = Printable(name, 80) + " is not a setting of nccltune and is not read";
    const std::string_view nearest = Nearest(names, name);
    if (!nearest.empty()) warning += "; did you mean " + std::string(nearest) + "?";
    warnings.push_back(warning);
  }
  return warnings;
}

}  // namespace nccltune
