// SPDX-License-Identifier: Apache-2.0
//
// Small text helpers that know no locale.
#ifndef NCCLTUNE_COMMON_TEXT_H_
#define NCCLTUNE_COMMON_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nccltune {

// Without blanks and tabs at either end.
std::string_view Trimmed(std::string_view text);

char LowerCase(char c);

// Foreign text between single quotes, fit for a log line: unprintable bytes as \xNN, cut with
// "..." after `longest` bytes.
std::string Quoted(std::string_view text, size_t longest = 40);

// Foreign text as Quoted, without the quotes.
std::string Printable(std::string_view text, size_t longest);

// A whole decimal number of digits only; empty for anything else, also for overflow.
std::optional<uint64_t> ParseUnsigned(std::string_view text);

// `line` and the parts behind it, as many as leave it at `most` characters or fewer; of the others
// it says how many they are.
std::string WithAsManyAsFit(std::string line, std::span<const std::string> parts,
                            std::string_view separator, size_t most);

std::string Hex64(uint64_t value);  // 16 lower-case digits

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_TEXT_H_
