// SPDX-License-Identifier: Apache-2.0
#include "common/settings.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "common/text.h"

namespace nccltune {
namespace {

constexpr uint64_t Bound(std::string_view text, Numbers* numbers) {
  uint64_t value = 0;
  for (const char letter : text) {
    if (letter >= '0' && letter <= '9') value = value * 10 + static_cast<uint64_t>(letter - '0');
    if (letter == 'K' || letter == 'M') numbers->units = true;
    if (letter == 'K') value <<= 10U;
    if (letter == 'M') value <<= 20U;
  }
  return value;
}

// Makes a row of the table. Reads the valid words and numbers from `type`.
constexpr Setting Row(const char* name, std::string_view type, std::string_view default_value,
                      std::string_view meaning) {
  constexpr std::string_view kOr = " or ";
  constexpr std::string_view kPair = "first-last of ";
  constexpr std::string_view kTo = " to ";
  Setting row = {.name = name, .type = type, .default_value = default_value, .meaning = meaning};
  if (type == "path" || type == "text") return row;
  std::string_view rest = type;
  if (const size_t to = rest.find(kTo); to != std::string_view::npos) {
    size_t begin = 0;
    if (const size_t word = rest.find(kOr); word != std::string_view::npos) {
      row.words[row.word_count++] = rest.substr(0, word);
      begin = word + kOr.size();
    }
    row.numbers.pair = rest.substr(begin).starts_with(kPair);
    if (row.numbers.pair) begin += kPair.size();
    row.numbers.least = Bound(rest.substr(begin, to - begin), &row.numbers);
    row.numbers.most = Bound(rest.substr(to + kTo.size()), &row.numbers);
    return row;
  }
  for (size_t bar = 0; bar != std::string_view::npos; rest.remove_prefix(bar + 1)) {
    bar = rest.find('|');
    row.words[row.word_count++] = rest.substr(0, bar);
    if (bar == std::string_view::npos) break;
  }
  return row;
}

constexpr auto kSettings = std::to_array<Setting>({
#define SETTING(id, ...) Row(__VA_ARGS__),
#include "common/settings.inc"
});

const Setting& Of(SettingId id) { return kSettings[static_cast<size_t>(id)]; }

// Returns the variable's value without surrounding blanks; empty if the variable is unset or empty.
std::string_view ValueOf(const Setting& setting) {
  const char* const value = std::getenv(setting.name);
  return value == nullptr ? std::string_view() : Trimmed(value);
}

std::string Refusal(const Setting& setting, std::string_view value, const std::string& valid) {
  std::string warning = std::string(setting.name) + "=" + Quoted(value) + " is not " + valid + "; ";
  const std::string_view nearest = Nearest(setting.valid(), value);
  if (!nearest.empty()) warning += "did you mean " + Quoted(nearest) + "? ";
  if (setting.default_value.empty()) return warning + "treating it as not set";
  return warning + "using " + std::string(setting.default_value);
}

std::optional<uint64_t> ParseNumber(std::string_view text, const Numbers& numbers) {
  unsigned shift = 0;
  if (numbers.units && !text.empty()) {
    const char unit = LowerCase(text.back());
    shift = unit == 'k' ? 10U : unit == 'm' ? 20U : 0U;
    if (shift != 0) text.remove_suffix(1);
  }
  const std::optional<uint64_t> number = ParseUnsigned(text);
  if (!number || *number > numbers.most >> shift) return std::nullopt;
  const uint64_t value = *number << shift;
  return value < numbers.least ? std::nullopt : std::optional(value);
}

std::optional<NumberRange> ParseRange(std::string_view text, const Numbers& numbers) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = ParseNumber(Trimmed(text.substr(0, dash)), numbers);
  const auto last = ParseNumber(Trimmed(text.substr(dash + 1)), numbers);
  if (!first || !last || *first > *last) return std::nullopt;
  return NumberRange{.first = *first, .last = *last};
}

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

std::string ReadPath(SettingId id) {
  const char* const value = std::getenv(Of(id).name);
  return value == nullptr || *value == '\0' ? std::string(Of(id).default_value)
                                            : std::string(value);
}

std::string_view ReadWord(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const std::string_view word = ValueOf(setting);
  if (word.empty()) return setting.default_value;
  for (const std::string_view valid : setting.valid()) {
    if (valid == word) return valid;
  }
  warnings->push_back(Refusal(setting, word, "one of " + Listed(setting.valid())));
  return setting.default_value;
}

std::optional<uint64_t> ReadNumber(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const std::string_view text = ValueOf(setting);
  if (NumberOf(setting.valid(), text).has_value()) return std::nullopt;
  const std::optional<uint64_t> number = ParseNumber(text, setting.numbers);
  if (number) return number;
  if (!text.empty()) warnings->push_back(Refusal(setting, text, std::string(setting.type)));
  return ParseNumber(setting.default_value, setting.numbers);
}

std::optional<NumberRange> ReadRange(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const std::string_view text = ValueOf(setting);
  const std::optional<NumberRange> range = ParseRange(text, setting.numbers);
  if (range) return range;
  if (!text.empty()) warnings->push_back(Refusal(setting, text, std::string(setting.type)));
  return ParseRange(setting.default_value, setting.numbers);
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
    std::string warning = Printable(name, 80) + " is not a setting of nccltune and is ignored";
    const std::string_view nearest = Nearest(names, name);
    if (!nearest.empty()) warning += "; did you mean " + std::string(nearest) + "?";
    warnings.push_back(warning);
  }
  return warnings;
}

}  // namespace nccltune
