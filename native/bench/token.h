// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_TOKEN_H_
#define NCCLTUNE_BENCH_TOKEN_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nccltune::bench {

// What the processes of one run share and nobody else knows: 128 random bits.
using Token = std::array<uint8_t, 16>;

// 32 hexadecimal digits.
std::optional<Token> ParseToken(std::string_view text);

// Takes as long for a near miss as for any other.
bool SameToken(const Token& a, const Token& b);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_TOKEN_H_
