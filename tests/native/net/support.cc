// SPDX-License-Identifier: Apache-2.0
#include "net/support.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include "net/refusal.h"

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
  std::array<char, 2048> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  EXPECT_EQ(flags, kLogSubsystems);
  const std::lock_guard lock(log_mutex);
  log_lines.push_back((level == abi::kLogWarn ? "WARN " : "INFO ") + std::string(text.data()));
}

}  // namespace nccltune::net
