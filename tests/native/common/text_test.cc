// SPDX-License-Identifier: Apache-2.0
#include "common/text.h"

#include <gtest/gtest.h>

namespace nccltune {
namespace {

using std::string_view_literals::operator""sv;

TEST(Text, Trimmed) {
  EXPECT_EQ(Trimmed(" \t a b\t "), "a b");
  EXPECT_EQ(Trimmed(" \t "), "");
  EXPECT_EQ(Trimmed(""), "");
}

TEST(Text, QuotedIsFitForALogLine) {
  EXPECT_EQ(Quoted("plain"), "'plain'");
  EXPECT_EQ(Quoted("a\nb\x1b\x7f\0c"sv), "'a\\x0ab\\x1b\\x7f\\x00c'");
  EXPECT_EQ(Quoted("123456", 5), "'12345...'");
  EXPECT_EQ(Quoted("12345", 5), "'12345'");
}

TEST(Text, ParseUnsigned) {
  EXPECT_EQ(ParseUnsigned("0"), 0U);
  EXPECT_EQ(ParseUnsigned("007"), 7U);
  EXPECT_EQ(ParseUnsigned("18446744073709551615"), UINT64_MAX);
  for (const std::string_view text :
       {""sv, "18446744073709551616"sv, "-1"sv, "+1"sv, " 1"sv, "1 "sv, "1a"sv, "0x1"sv, "1\0"sv}) {
    EXPECT_EQ(ParseUnsigned(text), std::nullopt) << text;
  }
}

TEST(Text, Hex64) {
  EXPECT_EQ(Hex64(0), "0000000000000000");
  EXPECT_EQ(Hex64(0x0123456789abcdefU), "0123456789abcdef");
}

}  // namespace
}  // namespace nccltune
