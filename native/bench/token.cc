// SPDX-License-Identifier: Apache-2.0
#include "bench/token.h"

#include <charconv>
#include <cstddef>
#include <system_error>

namespace nccltune::bench {

std::optional<Token> ParseToken(std::string_view text) {
  Token token{};
  if (text.size() != 2 * token.size()) return std::nullopt;
  for (size_t i = 0; i < token.size(); ++i) {
    const std::string_view digits = text.substr(2 * i, 2);
    const char* const begin = digits.data();
    const char* const end = begin + digits.size();
    const std::from_chars_result read = std::from_chars(begin, end, token[i], 16);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  }
  return token;
}

bool SameToken(const Token& a, const Token& b) {
  volatile uint8_t difference = 0;  // so that no compiler leaves the loop early
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace nccltune::bench
