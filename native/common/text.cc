// SPDX-License-Identifier: Apache-2.0
#include "common/text.h"

#include <charconv>
#include <cstring>
#include <system_error>

namespace nccltune {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

char LowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Printable(std::string_view text, size_t longest) {
  std::string printable;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      printable += "\\x";
      printable += kHexDigits[byte >> 4U];
      printable += kHexDigits[byte & 0xfU];
    } else {
      printable += c;
    }
  }
  if (text.size() > longest) printable += "...";
  return printable;
}

std::string Quoted(std::string_view text, size_t longest) {
  return "'" + Printable(text, longest) + "'";
}

std::optional<uint64_t> ParseUnsigned(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): `end` is passed too
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

std::string WithAsManyAsFit(std::string line, std::span<const std::string> parts,
                            std::string_view separator, size_t most) {
  constexpr size_t kRoomForRest = std::string_view(" and 9999 more").size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string text = (i == 0 ? std::string() : std::string(separator)) + parts[i];
    if (line.size() + text.size() + kRoomForRest > most) {
      return line + " and " + std::to_string(parts.size() - i) + " more";
    }
    line += text;
  }
  return line;
}

std::string ErrorWords(int error) {
  char text[128] = {};
  // This is the GNU version of strerror_r: the returned text may be outside of the buffer.
  return strerror_r(error, text, sizeof(text));
}

std::string Hex64(uint64_t value) {
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4U) digits[i] = kHexDigits[value & 0xfU];
  return digits;
}

}  // namespace nccltune
