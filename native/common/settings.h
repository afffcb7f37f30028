// SPDX-License-Identifier: Apache-2.0
// Reads the environment variables that the native code of nccltune knows. Each is declared once, in
// settings.inc. Tests compare the documentation with that table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/vocabulary.h"

namespace nccltune {

enum class SettingId {
#define SETTING(id, ...) id,
#include "common/settings.inc"
};

// The valid values of a numeric setting.
struct Numbers {
  uint64_t least = 0;
  uint64_t most = 0;   // 0: not a numeric setting
  bool units = false;  // the suffixes K and M mean 1024 and 1024 * 1024
  bool pair = false;   // the value is a range, "first-last"
};

struct Setting {
  const char* name;
  std::string_view type;           // the values, as settings.inc writes them
  std::string_view default_value;  // empty if there is no default
  std::string_view meaning;
  Numbers numbers = {};
  std::array<std::string_view, 4> words = {};
  size_t word_count = 0;

  // The valid words; for a numeric setting, words that replace a number; empty for a path.
  Words valid() const { return Words(words).first(word_count); }
};

// A range of numbers; both ends are included.
struct NumberRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// Returns the table in the order of SettingId.
std::span<const Setting> Settings();

// Returns the value of a setting that is a path or a text; the default, which is mostly empty, if
// the variable is unset or empty.
std::string ReadPath(SettingId id);

// Returns the value of a setting that is one of several words; the default if the variable is unset
// or empty. For an invalid value, returns the default and adds a warning that names the valid
// words.
std::string_view ReadWord(SettingId id, std::vector<std::string>* warnings);

// Returns the value of a numeric setting, or nothing if the value is a word such as "auto". An
// unset or empty variable has the default value. For an invalid value, returns the default and adds
// a warning that names the valid range.
std::optional<uint64_t> ReadNumber(SettingId id, std::vector<std::string>* warnings);

// Returns the value of a setting that is a range of numbers. For an unset or empty variable,
// returns the default, or nothing if the setting has no default. For an invalid value, does the
// same and adds a warning that names the valid ranges.
std::optional<NumberRange> ReadRange(SettingId id, std::vector<std::string>* warnings);

// Returns one warning for each NCCLTUNE_* variable of the environment that is not in the table.
std::vector<std::string> UnknownSettings();

}  // namespace nccltune
