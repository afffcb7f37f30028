// SPDX-License-Identifier: Apache-2.0
#include "net/support.h"

#include <cstdarg>
#include <mutex>
#include <utility>

#include "log_line.h"
#include "net/plugin.h"

namespace nccltune::net {
namespace {

std::mutex log_mutex;
std::vector<std::string> log_lines;

}  // namespace

std::vector<std::string> TakeLog() {
  const std::lock_guard lock(log_mutex);
  return std::exchange(log_lines, {});
}

void KeepLog(abi::LogLevel level, unsigned long flags, const char* /*file*/, int /*line*/,
             const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = LogText(format, arguments);
  va_end(arguments);
  EXPECT_EQ(flags, kLogSubsystems);
  const std::lock_guard lock(log_mutex);
  log_lines.push_back(LevelName(level) + text);
}

}  // namespace nccltune::net
