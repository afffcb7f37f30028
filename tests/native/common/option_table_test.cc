// SPDX-License-Identifier: Apache-2.0
#include "common/option_table.h"
#include "testing.h"

namespace nccltune {
namespace {

class OptionTableTest : public testing::Test {
 protected:
  static constexpr std::array<std::string_view, 2> kWords = {"fast", "slow"};

  OptionTableTest() {
    table_.Flag("--verbose", &verbose_);
    table_.Number("--ranks", 1, 64, &ranks_);
    table_.Number("--seed", uint64_t{0}, std::numeric_limits<uint64_t>::max(), &seed_);
    table_.Number("--seconds", 0.0, 3600.0, &seconds_);
    table_.Path("--plugin", &plugin_);
    table_.OneOf("--way", kWords, [this](size_t number) { way_ = number; });
  }

  // Returns the error, or an empty text.
  std::string ErrorOf(const std::vector<std::string_view>& arguments) {
    std::string error;
    const bool parsed = table_.Parse(arguments, &error);
    EXPECT_EQ(parsed, error.empty());
    return error;
  }

  OptionTable table_;
  bool verbose_ = false;
  std::optional<int> ranks_;
  uint64_t seed_ = 0;
  double seconds_ = 5;
  std::string plugin_;
  size_t way_ = 9;
};

TEST_F(OptionTableTest, ReadsValuesBehindAndInsideTheArgument) {
  EXPECT_EQ(ErrorOf({"--ranks", "8", "--seconds=0.5", "--plugin=a=b", "--verbose", "--way", "slow",
                     "--seed", "18446744073709551615"}),
            "");
  EXPECT_EQ(ranks_, 8);
  EXPECT_EQ(seconds_, 0.5);
  EXPECT_EQ(plugin_, "a=b");
  EXPECT_EQ(way_, 1U);
  EXPECT_EQ(seed_, UINT64_MAX);
  EXPECT_TRUE(verbose_);
}

TEST_F(OptionTableTest, NothingGivenIsNothingChanged) {
  EXPECT_EQ(ErrorOf({}), "");
  EXPECT_FALSE(ranks_);
  EXPECT_EQ(seconds_, 5);
  EXPECT_FALSE(verbose_);
}

TEST_F(OptionTableTest, TheMessageNamesTheOptionAndTheWayOut) {
  EXPECT_EQ(ErrorOf({"--rank", "1"}), "'--rank' is not an option; did you mean '--ranks'?");
  EXPECT_EQ(ErrorOf({"--zzz=1"}), "'--zzz' is not an option");
  EXPECT_EQ(ErrorOf({"word"}), "'word' is not an option");
  EXPECT_EQ(ErrorOf({"--ranks"}), "--ranks lacks its value");
  EXPECT_EQ(ErrorOf({"--verbose=1"}), "--verbose takes no value");
  EXPECT_EQ(ErrorOf({"--plugin", ""}), "--plugin: the path is empty");
  EXPECT_EQ(ErrorOf({"--way=slo"}), "--way: 'slo' is none of fast slow; did you mean 'slow'?");
}

TEST_F(OptionTableTest, NumbersOutOfRangeOrWithMoreAreRefused) {
  for (const char* text : {"0", "65", "-1", "8x", "", " 8", "0x8", "99999999999"}) {
    EXPECT_EQ(ErrorOf({"--ranks", text}),
              "--ranks: '" + std::string(text) + "' is no number from 1 to 64");
  }
  for (const char* text : {"nan", "inf", "-1", "3601", "1s"}) {
    EXPECT_EQ(ErrorOf({"--seconds", text}),
              "--seconds: '" + std::string(text) + "' is no number from 0 to 3600");
  }
  EXPECT_FALSE(ranks_);
  EXPECT_EQ(seconds_, 5);
}

TEST_F(OptionTableTest, OtherArgumentsGoWhereTheProgramWants) {
  std::vector<std::string> words;
  table_.Positional([&](std::string_view word) {
    words.emplace_back(word);
    return word == "bad" ? "'bad' is no mode" : "";
  });
  EXPECT_EQ(ErrorOf({"one", "--ranks", "two"}), "--ranks: 'two' is no number from 1 to 64");
  EXPECT_EQ(ErrorOf({"--verbose", "two"}), "");
  EXPECT_EQ(ErrorOf({"bad"}), "'bad' is no mode");
  EXPECT_EQ(words, (std::vector<std::string>{"one", "two", "bad"}));
}

}  // namespace
}  // namespace nccltune
