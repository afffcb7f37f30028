// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <string>

#include "log_line.h"

namespace nccltune {
namespace {

struct Line {
  abi::LogLevel level;
  unsigned long subsystems;
  std::string text;
};
Line last_line;

[[gnu::format(printf, 5, 6)]] void Keep(abi::LogLevel level, unsigned long flags, const char*, int,
                                        const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = LogText(format, arguments);
  va_end(arguments);
  last_line = {level, flags, text};
}

TEST(Log, PassesLevelSubsystemsAndText) {
  const Log log(&Keep, abi::kSubsysTuning, "prefix: ");
  log.Warn("careful");
  EXPECT_EQ(last_line.level, abi::kLogWarn);
  EXPECT_EQ(last_line.subsystems, abi::kSubsysTuning);
  EXPECT_EQ(last_line.text, "prefix: careful");
  log.Info("");
  EXPECT_EQ(last_line.level, abi::kLogInfo);
  EXPECT_EQ(last_line.text, "prefix: ");
}

TEST(Log, TextIsNoFormat) {
  const Log log(&Keep, 1, "");
  log.Warn("100 %s %n %d");
  EXPECT_EQ(last_line.text, "100 %s %n %d");
}

TEST(Log, CutsWhatNcclWouldNotFit) {
  const Log log(&Keep, 1, "p: ");
  const std::string fits(800 - 3, 'x');
  log.Info(fits);
  EXPECT_EQ(last_line.text, "p: " + fits);
  log.Info(fits + "y");
  EXPECT_EQ(last_line.text.size(), 800U);
  EXPECT_TRUE(last_line.text.ends_with("x ..."));
}

TEST(Log, WithoutALoggerIsSilent) {
  const Log log(nullptr, 1, "p: ");
  EXPECT_TRUE(log.silent());
  log.Warn("nobody hears this");
}

}  // namespace
}  // namespace nccltune
