// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_TOKEN_H_
#define NCCLTUNE_COMMON_TOKEN_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace nccltune {

// A shared secret of 128 random bits. Only the processes of one run, or a listener and its peers,
// know the token.
using Token = std::array<std::byte, 16>;

// Returns a new random token, or nothing if the kernel provides no random numbers.
std::optional<Token> NewToken();

// Parses 32 hexadecimal digits. Returns nothing for other text.
std::optional<Token> ParseToken(std::string_view text);

// Returns whether two tokens are equal. The time of the comparison does not depend on the content.
bool SameToken(const Token& a, const Token& b);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_TOKEN_H_
