// SPDX-License-Identifier: Apache-2.0
#include "common/token.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <set>

namespace nccltune {
namespace {

TEST(Token, IsAnotherOneEachTime) {
  std::set<Token> all;
  for (int i = 0; i < 100; ++i) {
    const std::optional<Token> token = NewToken();
    ASSERT_TRUE(token);
    all.insert(*token);
  }
  EXPECT_EQ(all.size(), 100U);
}

TEST(Token, HasThirtyTwoHexadecimalDigits) {
  const std::optional<Token> token = ParseToken("000102030405060708090a0b0c0d0eFf");
  ASSERT_TRUE(token);
  EXPECT_EQ((*token)[1], std::byte{1});
  EXPECT_EQ((*token)[15], std::byte{255});
  for (const char* text :
       {"", "00", "000102030405060708090a0b0c0d0e0", "+00102030405060708090a0b0c0d0e0f",
        "0x0102030405060708090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0f0",
        "000102030405060708090a0b0c0d0eg0"}) {
    EXPECT_FALSE(ParseToken(text)) << text;
  }
}

TEST(Token, AnyDifferentBitCounts) {
  const Token token = *ParseToken("000102030405060708090a0b0c0d0e0f");
  EXPECT_TRUE(SameToken(token, token));
  for (size_t byte = 0; byte < token.size(); ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      Token other = token;
      other[byte] ^= std::byte(1U << bit);
      EXPECT_FALSE(SameToken(token, other));
    }
  }
}

}  // namespace
}  // namespace nccltune
