// SPDX-License-Identifier: Apache-2.0
#include "common/text.h"
#include "abi/tuner.h"
#include "common/log.h"
#include "common/nccl_version.h"
#include "common/token.h"
#include "common/vocabulary.h"
#include "log_line.h"
#include "testing.h"

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

TEST(Vocabulary, APlaceInTheListIsNcclsNumber) {
  EXPECT_EQ(NumberOf(CollectiveNames(), "reducescatter"), abi::kReduceScatter);
  EXPECT_EQ(NumberOf(CollectiveNames(), "allreduce"), abi::kAllReduce);
  EXPECT_EQ(NumberOf(AlgorithmNames(), "collnet_chain"), abi::kCollnetChain);
  EXPECT_EQ(NumberOf(AlgorithmNames(), "pat"), abi::kPat);
  EXPECT_EQ(NumberOf(ProtocolNames(), "simple"), abi::kSimple);
  EXPECT_EQ(NumberOf(ProtocolNames(), "Simple"), std::nullopt);
  EXPECT_EQ(NumberOf(ProtocolNames(), ""), std::nullopt);
}

TEST(Vocabulary, NearestForgivesCaseJointsAndALetter) {
  EXPECT_EQ(Nearest(AlgorithmNames(), " NVLSTree "), "nvls_tree");
  EXPECT_EQ(Nearest(AlgorithmNames(), "collnet-direct"), "collnet_direct");
  EXPECT_EQ(Nearest(AlgorithmNames(), "rings"), "ring");
  EXPECT_EQ(Nearest(CollectiveNames(), "all_gather"), "allgather");
  EXPECT_EQ(Nearest(CollectiveNames(), "reduce scatter"), "reducescatter");
  EXPECT_EQ(Nearest(ProtocolNames(), "LL-128"), "ll128");
}

TEST(Vocabulary, NearestDoesNotGuessWildly) {
  EXPECT_EQ(Nearest(AlgorithmNames(), "butterfly"), "");
  EXPECT_EQ(Nearest(AlgorithmNames(), ""), "");
  EXPECT_EQ(Nearest(AlgorithmNames(), std::string(100000, 'x')), "");
}

TEST(Vocabulary, Listed) { EXPECT_EQ(Listed(ProtocolNames()), "ll ll128 simple"); }

TEST(NcclVersion, FromCode) {
  EXPECT_EQ(NcclVersionFromCode(22809), (NcclVersion{2, 28, 9}));
  EXPECT_EQ(NcclVersionFromCode(23102), (NcclVersion{2, 31, 2}));
  EXPECT_EQ(NcclVersionFromCode(2804), (NcclVersion{2, 8, 4}));
  EXPECT_EQ(NcclVersionFromCode(0), std::nullopt);
  EXPECT_EQ(NcclVersionFromCode(-22809), std::nullopt);
}

TEST(NcclVersion, FromText) {
  EXPECT_EQ(ParseNcclVersion("2.28.9"), (NcclVersion{2, 28, 9}));
  EXPECT_EQ(ParseNcclVersion("2.28"), (NcclVersion{2, 28, 0}));
  for (const char* text : {"", "2", "2.", "2.28.", "2.28.9.1", ".2", "2.x", "-2.28", "2.1000"}) {
    EXPECT_EQ(ParseNcclVersion(text), std::nullopt) << text;
  }
}

TEST(NcclVersion, OrderAndText) {
  EXPECT_LT((NcclVersion{2, 9, 0}), (NcclVersion{2, 28, 0}));
  EXPECT_EQ(ToString(NcclVersion{2, 28, 9}), "2.28.9");
}

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

LogLine LastLine() {
  const std::vector<LogLine> lines = TakeLogLines();
  EXPECT_EQ(lines.size(), 1U);
  return lines.empty() ? LogLine{} : lines.back();
}

TEST(Log, PassesLevelSubsystemsAndText) {
  const Log log(&KeepLine, abi::kSubsysTuning, "prefix: ");
  log.Warn("careful");
  const LogLine warning = LastLine();
  EXPECT_EQ(warning.level, abi::kLogWarn);
  EXPECT_EQ(warning.flags, abi::kSubsysTuning);
  EXPECT_EQ(warning.text, "prefix: careful");
  log.Info("");
  const LogLine information = LastLine();
  EXPECT_EQ(information.level, abi::kLogInfo);
  EXPECT_EQ(information.text, "prefix: ");
}

TEST(Log, TextIsNoFormat) {
  const Log log(&KeepLine, 1, "");
  log.Warn("100 %s %n %d");
  EXPECT_EQ(LastLine().text, "100 %s %n %d");
}

TEST(Log, CutsWhatNcclWouldNotFit) {
  const Log log(&KeepLine, 1, "p: ");
  const std::string fits(800 - 3, 'x');
  log.Info(fits);
  EXPECT_EQ(LastLine().text, "p: " + fits);
  log.Info(fits + "y");
  const std::string cut = LastLine().text;
  EXPECT_EQ(cut.size(), 800U);
  EXPECT_TRUE(cut.ends_with("x ..."));
}

TEST(Log, WithoutALoggerIsSilent) {
  const Log log(nullptr, 1, "p: ");
  EXPECT_TRUE(log.silent());
  log.Warn("nobody hears this");
}

}  // namespace
}  // namespace nccltune
