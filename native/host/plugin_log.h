// SPDX-License-Identifier: Apache-2.0
// Replaces NCCL's logger and stores the lines that plugins log.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "abi/tuner.h"

namespace nccltune::host {

struct LogLine {
  int level = 0;
  std::string text;
};

struct LogLines {
  std::vector<LogLine> lines;
  size_t dropped = 0;  // number of lines beyond kMaxLines, which were not stored
};

// Returns "WARN" for 2 and "INFO" for 3; "LEVEL 9" for a number that NCCL does not have.
std::string LogLevelName(int level);

// One log for the whole process, because NCCL's log function has no argument that identifies the
// plugin. Any thread may log.
namespace plugin_log {

// Returns the log function for the plugin's init. The function accepts null pointers and truncates
// a line at 4 KiB.
abi::LogFunction Function();

// Sets whether each line is also printed to standard error at once.
void SetEcho(bool echo);

// Returns and removes the lines since the last call, oldest first, at most `kMaxLines`.
LogLines Take();

inline constexpr size_t kMaxLines = 2000;

}  // namespace plugin_log

}  // namespace nccltune::host
