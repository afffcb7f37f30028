// SPDX-License-Identifier: Apache-2.0
// Small text functions that do not depend on the locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nccltune {

// Returns the text without blanks and tabs at either end.
std::string_view Trimmed(std::string_view text);

char LowerCase(char c);

// Returns `text` in single quotes, safe for a log line. Control characters become \xNN. A text of
// more than `longest` bytes is cut and ends with "...".
std::string Quoted(std::string_view text, size_t longest = 40);

// Returns the same text as Quoted, but without the quotes.
std::string Printable(std::string_view text, size_t longest);

// Parses a decimal number. Returns nothing if the text is empty, has any other character, or
// exceeds 64 bits.
std::optional<uint64_t> ParseUnsigned(std::string_view text);

// Returns `line` followed by as many parts as fit into `most` characters. If parts are left out,
// the text ends with their number, such as " and 3 more".
std::string WithAsManyAsFit(std::string line, std::span<const std::string> parts,
                            std::string_view separator, size_t most);

// Returns the text of an errno value. Thread-safe.
std::string ErrorWords(int error);

std::string Hex64(uint64_t value);  // Returns 16 lower-case hexadecimal digits.

}  // namespace nccltune
