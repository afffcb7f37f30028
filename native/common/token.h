// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace nccltune {

// Fills `data` with `bytes` random bytes. Returns false if that fails. The bytes come from
// getrandom(2), or from /dev/urandom if a sandbox forbids getrandom. std::random_device is not
// used: it needs arc4random, which is new in glibc 2.36.
bool RandomBytes(void* data, size_t bytes);

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
