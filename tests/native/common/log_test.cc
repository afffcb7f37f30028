// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"
#include "log_line.h"
#include "testing.h"

namespace nccltune {
namespace {

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
