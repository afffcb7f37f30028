// SPDX-License-Identifier: Apache-2.0
//
// Every environment variable that a native part of nccltune reads, declared once. Help texts and
// documentation are checked against this table.
#ifndef NCCLTUNE_COMMON_SETTINGS_H_
#define NCCLTUNE_COMMON_SETTINGS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/vocabulary.h"

namespace nccltune {

enum class SettingId { kConfig, kNcclConfigFile, kStrict, kStale, kNativeDir, kToken };

struct Setting {
  const char* name;
  std::string_view type;           // "path", or the valid words separated by "|"
  std::string_view default_value;  // empty: not set
  std::string_view meaning;
  Words valid;  // empty for a path
};

// In the order of SettingId.
std::span<const Setting> Settings();

// The value of a path or a text; empty when it is not set or set to nothing.
std::string ReadPath(SettingId id);

// The value of a setting of words. One that is not valid is named in `warnings` together with the
// nearest valid one, and the default is taken.
std::string_view ReadWord(SettingId id, std::vector<std::string>* warnings);

// One warning for each NCCLTUNE_* variable in the environment that is not in the table.
std::vector<std::string> UnknownSettings();

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_SETTINGS_H_
