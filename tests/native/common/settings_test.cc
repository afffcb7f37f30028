// SPDX-License-Identifier: Apache-2.0
#include "common/settings.h"
#include "common/option_table.h"
#include "testing.h"

namespace nccltune {
namespace {

std::string PageOf(const Setting& setting) {
  const std::string_view name = setting.name;
  const std::string path =
      std::string(REFERENCE_PAGES) + (name.starts_with("NCCLTUNE_NET_")       ? "/net-plugin.md"
                                      : name.starts_with("NCCLTUNE_RECORD")   ? "/workload.md"
                                      : name.starts_with("NCCLTUNE_SENDRECV") ? "/sendrecv.md"
                                                                              : "/tuner-plugin.md");
  std::ifstream page(path);
  EXPECT_TRUE(page.is_open()) << path;
  std::stringstream text;
  text << page.rdbuf();
  return text.str();
}

TEST(Settings, EachStandsInTheReferenceWithTypeAndDefault) {
  for (const Setting& setting : Settings()) {
    std::string type(setting.type);
    for (size_t bar = type.find('|'); bar != std::string::npos; bar = type.find('|', bar + 6)) {
      type.replace(bar, 1, "` or `");
    }
    if (!setting.valid().empty() && setting.numbers.most == 0) type = "`" + type + "`";
    const std::string value =
        setting.default_value.empty() ? "not set" : "`" + std::string(setting.default_value) + "`";
    const std::string row =
        "| `" + std::string(setting.name) + "` | " + type + " | " + value + " | ";
    EXPECT_TRUE(Has(PageOf(setting), row)) << "no table row begins with: " << row;
  }
}

TEST(Settings, DefaultsAreValid) {
  for (const Setting& setting : Settings()) {
    if (setting.valid().empty() && setting.numbers.most == 0) continue;
    if (NumberOf(setting.valid(), setting.default_value).has_value()) continue;
    // Setting the default value explicitly must give no warning.
    ASSERT_GT(setting.numbers.most, 0U) << setting.name;
    if (setting.default_value.empty()) continue;
    const auto id = static_cast<SettingId>(&setting - Settings().data());
    std::vector<std::string> warnings;
    unsetenv(setting.name);
    const std::optional<uint64_t> unset = ReadNumber(id, &warnings);
    setenv(setting.name, std::string(setting.default_value).c_str(), 1);
    EXPECT_EQ(ReadNumber(id, &warnings), unset) << setting.name;
    unsetenv(setting.name);
    EXPECT_TRUE(unset.has_value()) << setting.name;
    EXPECT_TRUE(warnings.empty()) << warnings.front();
  }
}

TEST(Settings, WordsAreReadWithoutTheBlanksAroundThem) {
  std::vector<std::string> warnings;
  setenv("NCCLTUNE_STALE", " off ", 1);
  EXPECT_EQ(ReadWord(SettingId::kStale, &warnings), "off");
  setenv("NCCLTUNE_STALE", "", 1);
  EXPECT_EQ(ReadWord(SettingId::kStale, &warnings), "warn");
  EXPECT_TRUE(warnings.empty());
  setenv("NCCLTUNE_STALE", "of", 1);
  EXPECT_EQ(ReadWord(SettingId::kStale, &warnings), "warn");
  unsetenv("NCCLTUNE_STALE");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "NCCLTUNE_STALE='of' is not one of warn off; did you mean 'off'? using warn");
}

// Returns the result of ReadNumber, followed by its warning if there is one.
std::string Number(SettingId id, const char* value) {
  const char* const name = Settings()[static_cast<size_t>(id)].name;
  setenv(name, value, 1);
  std::vector<std::string> warnings;
  const std::optional<uint64_t> number = ReadNumber(id, &warnings);
  unsetenv(name);
  std::string text = number ? std::to_string(*number) : "none";
  for (const std::string& warning : warnings) text += " " + warning;
  return text;
}

TEST(Settings, NumbersAreReadInTheirRange) {
  EXPECT_EQ(Number(SettingId::kNetFlows, " 64 "), "64");
  EXPECT_EQ(Number(SettingId::kNetFlows, "1"), "1");
  EXPECT_EQ(Number(SettingId::kNetFlows, "auto"), "none");
  EXPECT_EQ(Number(SettingId::kNetFlows, ""), "none");
  EXPECT_EQ(Number(SettingId::kNetTimeout, ""), "600");
  EXPECT_EQ(Number(SettingId::kNetTimeout, "0"), "0");
}

TEST(Settings, NumbersMayHaveUnitsWhereTheyAreBytes) {
  EXPECT_EQ(Number(SettingId::kNetEager, "8k"), "8192");
  EXPECT_EQ(Number(SettingId::kNetEager, "1M"), "1048576");
  EXPECT_EQ(Number(SettingId::kNetEager, "1024K"), "1048576");
  EXPECT_EQ(Number(SettingId::kNetEager, "0"), "0");
  EXPECT_EQ(Number(SettingId::kNetTimeout, "1K"),
            "600 NCCLTUNE_NET_TIMEOUT='1K' is not 0 to 1000000; using 600");
}

TEST(Settings, NumbersThatAreNotValidAreNamed) {
  for (const char* const value : {"0", "65", "-1", "8 flows", "1e3", "18446744073709551616"}) {
    EXPECT_EQ(
        Number(SettingId::kNetFlows, value),
        std::string("none NCCLTUNE_NET_FLOWS='") + value + "' is not auto or 1 to 64; using auto");
  }
  EXPECT_EQ(Number(SettingId::kNetFlows, "Auto"),
            "none NCCLTUNE_NET_FLOWS='Auto' is not auto or 1 to 64; did you mean 'auto'? using "
            "auto");
  for (const char* const value : {"2M", "1025K", "K", "18446744073709551615M"}) {
    EXPECT_EQ(Number(SettingId::kNetEager, value),
              std::string("16384 NCCLTUNE_NET_EAGER='") + value + "' is not 0 to 1M; using 16K");
  }
}

// The same for a range.
std::string Range(const char* value) {
  setenv("NCCLTUNE_NET_PORTS", value, 1);
  std::vector<std::string> warnings;
  const std::optional<NumberRange> range = ReadRange(SettingId::kNetPorts, &warnings);
  unsetenv("NCCLTUNE_NET_PORTS");
  std::string text =
      range ? std::to_string(range->first) + ".." + std::to_string(range->last) : "none";
  for (const std::string& warning : warnings) text += " " + warning;
  return text;
}

TEST(Settings, RangesAreTwoNumbers) {
  EXPECT_EQ(Range("50000-50999"), "50000..50999");
  EXPECT_EQ(Range(" 1 - 65535 "), "1..65535");
  EXPECT_EQ(Range("7000-7000"), "7000..7000");
  EXPECT_EQ(Range(""), "none");
  for (const char* const value : {"50000", "50999-50000", "0-5", "1-65536", "1-2-3", "-", "a-b"}) {
    EXPECT_EQ(Range(value), std::string("none NCCLTUNE_NET_PORTS='") + value +
                                "' is not first-last of 1 to 65535; treating it as not set");
  }
}

TEST(Settings, PathsAreReadAsTheyAre) {
  setenv("NCCLTUNE_CONFIG", " /a b ", 1);
  EXPECT_EQ(ReadPath(SettingId::kConfig), " /a b ");
  unsetenv("NCCLTUNE_CONFIG");
  EXPECT_EQ(ReadPath(SettingId::kConfig), "");
}

TEST(Settings, UnknownOnesOfOursAreNamed) {
  setenv("NCCLTUNE_STRIKT", "1", 1);
  setenv("NCCLTUNE_STRICT", "1", 1);
  const std::vector<std::string> warnings = UnknownSettings();
  unsetenv("NCCLTUNE_STRIKT");
  unsetenv("NCCLTUNE_STRICT");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "NCCLTUNE_STRIKT is not a setting of nccltune and is ignored; did you mean "
            "NCCLTUNE_STRICT?");
}

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
