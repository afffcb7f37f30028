// SPDX-License-Identifier: Apache-2.0
#include "host/plugin_log.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

namespace nccltune::host {
namespace {

struct Log {
  std::mutex mutex;
  LogLines taken;
  bool echo = false;
};

Log& TheLog() {
  // Never destroyed, because a plugin's thread may log while the process exits.
  static Log* const log = new Log();
  return *log;
}

[[gnu::format(printf, 5, 6)]] void Keep(abi::LogLevel level, unsigned long /*flags*/,
                                        const char* /*file*/, int /*line*/, const char* format,
                                        ...) {
  char text[4096];
  text[0] = '\0';
  if (format != nullptr) {
    va_list arguments;
    va_start(arguments, format);
    // The format comes from the plugin. If it is invalid, only this line is lost.
    if (std::vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = '\0';
    va_end(arguments);
  }
  Log& log = TheLog();
  const std::lock_guard<std::mutex> lock(log.mutex);
  if (log.echo) std::fprintf(stderr, "plugin %s: %s\n", LogLevelName(level).c_str(), text);
  if (log.taken.lines.size() < plugin_log::kMaxLines) {
    log.taken.lines.push_back({level, text});
  } else {
    ++log.taken.dropped;
  }
}

}  // namespace

std::string LogLevelName(int level) {
  static constexpr const char* kNames[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  if (level >= 0 && level <= abi::kLogTrace) return kNames[level];
  return "LEVEL " + std::to_string(level);
}

namespace plugin_log {

abi::LogFunction Function() { return &Keep; }

void SetEcho(bool echo) {
  const std::lock_guard<std::mutex> lock(TheLog().mutex);
  TheLog().echo = echo;
}

LogLines Take() {
  const std::lock_guard<std::mutex> lock(TheLog().mutex);
  return std::exchange(TheLog().taken, {});
}

}  // namespace plugin_log

}  // namespace nccltune::host
