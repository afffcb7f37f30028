// SPDX-License-Identifier: Apache-2.0
#include "common/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace nccltune {
namespace {

TEST(Settings, EachStandsInTheReferenceWithTypeAndDefault) {
  std::ifstream page(REFERENCE_PAGE);
  ASSERT_TRUE(page.is_open()) << REFERENCE_PAGE;
  std::stringstream text;
  text << page.rdbuf();
  for (const Setting& setting : Settings()) {
    std::string type(setting.type);
    for (size_t bar = type.find('|'); bar != std::string::npos; bar = type.find('|', bar + 6)) {
      type.replace(bar, 1, "` or `");
    }
    if (!setting.valid.empty()) type = "`" + type + "`";
    const std::string value =
        setting.default_value.empty() ? "not set" : "`" + std::string(setting.default_value) + "`";
    const std::string row =
        "| `" + std::string(setting.name) + "` | " + type + " | " + value + " | ";
    EXPECT_NE(text.str().find(row), std::string::npos) << "no table row begins with: " << row;
  }
}

TEST(Settings, DefaultsAreValid) {
  for (const Setting& setting : Settings()) {
    if (setting.valid.empty()) continue;
    EXPECT_TRUE(NumberOf(setting.valid, setting.default_value).has_value()) << setting.name;
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
            "NCCLTUNE_STALE='of' is not one of warn off; did you mean 'off'? taking warn");
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
            "NCCLTUNE_STRIKT is not a setting of nccltune and is not read; did you mean "
            "NCCLTUNE_STRICT?");
}

}  // namespace
}  // namespace nccltune
