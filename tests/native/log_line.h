// SPDX-License-Identifier: Apache-2.0
// A logger like NCCL's, which keeps the lines.
#pragma once

#include "abi/nccl_types.h"
#include "standard.h"

namespace nccltune {

struct LogLine {
  abi::LogLevel level;
  unsigned long flags;
  std::string text;
};

struct KeptLog {
  std::mutex mutex;
  std::vector<LogLine> lines;

  static KeptLog& Get() {
    static KeptLog log;
    return log;
  }
};

[[gnu::format(printf, 5, 6)]] inline void KeepLine(abi::LogLevel level, unsigned long flags,
                                                   const char* /*file*/, int /*line*/,
                                                   const char* format, ...) {
  std::array<char, 4096> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::scoped_lock lock(KeptLog::Get().mutex);
  KeptLog::Get().lines.push_back({level, flags, text.data()});
}

// Return the lines since the last call; as texts: "WARN text" and "INFO text".
inline std::vector<LogLine> TakeLogLines() {
  const std::scoped_lock lock(KeptLog::Get().mutex);
  return std::exchange(KeptLog::Get().lines, {});
}
inline std::vector<std::string> TakeLines() {
  std::vector<std::string> lines;
  for (const LogLine& line : TakeLogLines()) {
    lines.push_back((line.level == abi::kLogWarn ? "WARN " : "INFO ") + line.text);
  }
  return lines;
}

}  // namespace nccltune
